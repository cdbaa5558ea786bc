# The C types of _walk.py, for its compiled form. Nothing is defined here.
cimport cython

cdef long long _MALFORMED
cdef int _NULL_KEY
cdef int _BAD_TIMESTAMP
cdef int _BAD_OFFSET
cdef int _SMALLEST
cdef long long _LONG_MAX
cdef Py_ssize_t _PLACE_BYTES
cdef long long _BATCH_BYTES

@cython.locals(byte=cython.ulonglong, value=cython.ulonglong, shift=cython.int)
cdef (long long, Py_ssize_t) _number(const unsigned char* body, Py_ssize_t at, Py_ssize_t end) noexcept nogil

cdef Py_ssize_t _skip(Py_ssize_t at, long long size, Py_ssize_t end) noexcept nogil

@cython.locals(count=cython.longlong, size=cython.longlong)
cdef Py_ssize_t _headers(const unsigned char* body, Py_ssize_t at, Py_ssize_t end) noexcept nogil

@cython.locals(length=cython.longlong, stop=cython.Py_ssize_t, timestamp=cython.longlong, offset=cython.longlong, key_size=cython.longlong, value_size=cython.longlong)
cdef (long long, long long, long long, Py_ssize_t) _record(const unsigned char* body, Py_ssize_t at, Py_ssize_t end) noexcept nogil

cdef bint _overflows(long long base, long long delta) noexcept nogil

cpdef long long largest_timestamp(object body, Py_ssize_t at, Py_ssize_t end, long long count, long long base_timestamp) except? -3

@cython.locals(largest=cython.longlong, delta=cython.longlong)
cdef long long _largest(const unsigned char* body, Py_ssize_t at, Py_ssize_t end, long long count, long long base_timestamp) noexcept nogil

cdef inline long long _largest_compiled(const unsigned char[::1] body, Py_ssize_t at, Py_ssize_t end, long long count, long long base_timestamp) noexcept:
    return _largest(&body[0], at, end, count, base_timestamp)

cpdef long long examine(object body, Py_ssize_t at, Py_ssize_t end, long long count, long long base_timestamp, long long earliest, long long latest, int wanted, long long[::1] found) except? -3

@cython.locals(largest=cython.longlong, index=cython.longlong, errors=cython.Py_ssize_t, room=cython.Py_ssize_t, delta=cython.longlong, offset=cython.longlong, key_size=cython.longlong, timestamp=cython.longlong, problem=cython.int)
cdef long long _examine(const unsigned char* body, Py_ssize_t at, Py_ssize_t end, long long count, long long base_timestamp, long long earliest, long long latest, int wanted, long long[::1] found) noexcept nogil

cdef inline long long _examine_compiled(const unsigned char[::1] body, Py_ssize_t at, Py_ssize_t end, long long count, long long base_timestamp, long long earliest, long long latest, int wanted, long long[::1] found) noexcept:
    with nogil:
        return _examine(&body[0], at, end, count, base_timestamp, earliest, latest, wanted, found)

cpdef bint find(object body, Py_ssize_t at, Py_ssize_t end, long long base_offset, long long base_timestamp, long long from_timestamp, long long from_offset, long long[::1] found) except? -1

@cython.locals(timestamp=cython.longlong, offset=cython.longlong)
cdef bint _find(const unsigned char* body, Py_ssize_t at, Py_ssize_t end, long long base_offset, long long base_timestamp, long long from_timestamp, long long from_offset, long long[::1] found) noexcept nogil

cdef inline bint _find_compiled(const unsigned char[::1] body, Py_ssize_t at, Py_ssize_t end, long long base_offset, long long base_timestamp, long long from_timestamp, long long from_offset, long long[::1] found) noexcept:
    with nogil:
        return _find(&body[0], at, end, base_offset, base_timestamp, from_timestamp, from_offset, found)

cpdef Py_ssize_t batches(object data, Py_ssize_t size, long long below, long long[::1] found) except? -3

@cython.locals(at=cython.Py_ssize_t, next_offset=cython.longlong, base=cython.longlong, length=cython.longlong)
cdef Py_ssize_t _batches(const unsigned char* data, Py_ssize_t size, long long below, long long[::1] found) noexcept nogil

cdef inline Py_ssize_t _batches_compiled(const unsigned char[::1] data, Py_ssize_t size, long long below, long long[::1] found) noexcept:
    return _batches(&data[0], size, below, found)

@cython.locals(value=cython.longlong, index=cython.Py_ssize_t)
cdef long long _big(const unsigned char* data, Py_ssize_t at, Py_ssize_t count) noexcept nogil

@cython.locals(value=cython.ulonglong, shift=cython.int, byte=cython.ulonglong)
cdef (long long, Py_ssize_t) _varint(bytes data, Py_ssize_t at, Py_ssize_t end) except *

@cython.locals(size=cython.longlong)
cdef tuple _bytes(bytes data, Py_ssize_t at, Py_ssize_t end)

@cython.locals(zigzag=cython.ulonglong)
cdef int _put(bytearray out, long long value) except -1

@cython.locals(length=cython.longlong, stop=cython.Py_ssize_t, timestamp=cython.longlong, offset=cython.longlong, header_count=cython.longlong, headers=list, records=list)
cpdef list decode_records(bytes data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t count, object base_offset, object base_timestamp, object append_time, object make)

@cython.locals(out=bytearray, one=bytearray, index=cython.longlong)
cpdef bytearray encode_records(object records, object base_offset, long long base_timestamp)
