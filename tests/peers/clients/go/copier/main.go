// Copies a topic in transactions with franz-go, partition by partition: see ../../../copying.py for what it prints.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var stopped atomic.Bool

// live is one life of a session. It ends when it is told to, or when the session cannot go on.
func live(servers []string, source, sink, name string) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(servers...),
		kgo.TransactionalID(name),
		kgo.ConsumerGroup(name),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionTimeout(10*time.Second),
	)
	if err != nil {
		panic(err)
	}
	defer session.Close()
	for !stopped.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		fetches := session.PollRecords(ctx, 200)
		cancel()
		fetches.EachError(func(topic string, partition int32, err error) {
			if err != context.DeadlineExceeded {
				fmt.Printf("note fetch %s-%d: %v\n", topic, partition, err)
			}
		})
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		promise := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(r *kgo.Record) {
			copied := &kgo.Record{Topic: sink, Partition: r.Partition, Value: r.Value}
			session.Produce(context.Background(), copied, promise.Promise())
		})
		committed, err := session.End(context.Background(), promise.Err() == nil)
		if err != nil {
			return err
		}
		if committed {
			fmt.Println("committed")
		} else {
			fmt.Println("aborted")
		}
	}
	return nil
}

func main() {
	servers, source, sink, name := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3], os.Args[4]
	go func() {
		bufio.NewScanner(os.Stdin).Scan()
		stopped.Store(true)
	}()
	for !stopped.Load() {
		if err := live(servers, source, sink, name); err != nil {
			fmt.Printf("note session: %v\n", err)
		}
	}
	fmt.Println("closed")
}
