// A producer and a member of a group with franz-go, at its defaults: see ../../programs.py for what it prints.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var mutex sync.Mutex

func say(format string, values ...any) {
	mutex.Lock()
	defer mutex.Unlock()
	fmt.Printf(format+"\n", values...)
}

func must(client *kgo.Client, err error) *kgo.Client {
	if err != nil {
		panic(err)
	}
	return client
}

func produce(client *kgo.Client, topic string, partitions int, stop chan struct{}, flushed chan struct{}) {
	defer close(flushed)
	ctx := context.Background()
	sent := 0
	for {
		select {
		case <-stop:
			if err := client.Flush(ctx); err != nil {
				say("error flush: %v", err)
			}
			say("flushed %d", sent)
			return
		case <-time.After(2 * time.Millisecond):
			number := sent
			record := &kgo.Record{Topic: topic, Partition: int32(number % partitions), Value: []byte(strconv.Itoa(number))}
			client.Produce(ctx, record, func(r *kgo.Record, err error) {
				if err != nil {
					say("error produce: %v", err)
					return
				}
				say("ack %d %d %d", r.Partition, r.Offset, number)
			})
			sent++
		}
	}
}

func consume(client *kgo.Client) {
	for {
		fetches := client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			say("error fetch %s-%d: %v", topic, partition, err)
		})
		fetches.EachRecord(func(r *kgo.Record) { say("got %d %d %s", r.Partition, r.Offset, r.Value) })
	}
}

// secured has the options of TLS and SASL, where the environment names any: see programs.py.
func secured(options ...kgo.Opt) []kgo.Opt {
	if ca := os.Getenv("CLIENT_CA"); ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			panic(err)
		}
		settings := &tls.Config{RootCAs: x509.NewCertPool()}
		settings.RootCAs.AppendCertsFromPEM(text)
		if pem := os.Getenv("CLIENT_PEM"); pem != "" {
			own, err := tls.LoadX509KeyPair(pem, pem)
			if err != nil {
				panic(err)
			}
			settings.Certificates = []tls.Certificate{own}
		}
		options = append(options, kgo.DialTLSConfig(settings))
	}
	if user := os.Getenv("CLIENT_USER"); user != "" {
		login := scram.Auth{User: user, Pass: os.Getenv("CLIENT_PASSWORD")}
		options = append(options, kgo.SASL(login.AsSha256Mechanism()))
	}
	return options
}

func main() {
	servers, topic, group := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3]
	partitions, _ := strconv.Atoi(os.Args[4])
	producer := must(kgo.NewClient(secured(kgo.SeedBrokers(servers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...))
	consumer := must(kgo.NewClient(secured(kgo.SeedBrokers(servers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...))
	stop, flushed := make(chan struct{}), make(chan struct{})
	go produce(producer, topic, partitions, stop, flushed)
	go consume(consumer)
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	close(stop)
	<-flushed
	lines.Scan()
	if err := consumer.CommitUncommittedOffsets(context.Background()); err != nil {
		say("error commit: %v", err)
	}
	consumer.Close()
	producer.Close()
	say("closed")
}
