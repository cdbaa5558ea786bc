# The C types of _walk.py, for its compiled form. Nothing is defined here.
cimport cython

cdef long long _MALFORMED
cdef int _NULL_KEY
cdef int _BAD_TIMESTAMP
cdef int _BAD_OFFSET
cdef int _SMALLEST
cdef long long _LONG_MAX
cdef unsigned long long _WORD
cdef Py_ssize_t _MAP_HEAD
cdef Py_ssize_t _MAP_SLOT
cdef unsigned long long _SIP_A
cdef unsigned long long _SIP_B
cdef unsigned long long _SIP_C
cdef unsigned long long _SIP_D
cdef Py_ssize_t _PLACE_BYTES
cdef long long _BATCH_BYTES

@cython.locals(byte=cython.ulonglong, value=cython.ulonglong, shift=cython.int)
cdef (long long, Py_ssize_t) _number(const unsigned char* body, Py_ssize_t at, Py_ssize_t end) noexcept nogil

cdef Py_ssize_t _skip(Py_ssize_t at, long long size, Py_ssize_t end) noexcept nogil

@cython.locals(count=cython.longlong, size=cython.longlong)
cdef Py_ssize_t _headers(const unsigned char* body, Py_ssize_t at, Py_ssize_t end) noexcept nogil

@cython.locals(timestamp=cython.longlong, offset=cython.longlong, key_size=cython.longlong, stop=cython.Py_ssize_t, _=cython.longlong)
cdef (long long, long long, long long, Py_ssize_t) _record(const unsigned char* body, Py_ssize_t at, Py_ssize_t end) noexcept nogil

@cython.locals(length=cython.longlong, stop=cython.Py_ssize_t, timestamp=cython.longlong, offset=cython.longlong, key_at=cython.Py_ssize_t, key_size=cython.longlong, value_size=cython.longlong)
cdef (long long, long long, Py_ssize_t, long long, long long, Py_ssize_t) _fields(const unsigned char* body, Py_ssize_t at, Py_ssize_t end) noexcept nogil

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

cdef (unsigned long long, unsigned long long, unsigned long long, unsigned long long) _round(unsigned long long a, unsigned long long b, unsigned long long c, unsigned long long d) noexcept nogil

@cython.locals(a=cython.ulonglong, b=cython.ulonglong, c=cython.ulonglong, d=cython.ulonglong, word=cython.ulonglong, byte=cython.ulonglong, left=cython.Py_ssize_t, index=cython.Py_ssize_t, done=cython.bint, _=cython.int)
cdef (unsigned long long, unsigned long long) _digest(const unsigned char* body, Py_ssize_t at, Py_ssize_t size, unsigned long long first, unsigned long long second) noexcept nogil

@cython.locals(at=cython.Py_ssize_t)
cdef Py_ssize_t _slot(unsigned long long[::1] table, unsigned long long first, unsigned long long second) noexcept nogil

cpdef Py_ssize_t take_keys(object body, Py_ssize_t at, Py_ssize_t end, long long base_offset, long long from_offset, unsigned long long keys_max, unsigned long long[::1] table, long long[::1] found) except? -3

@cython.locals(_=cython.longlong, offset=cython.longlong, key_at=cython.Py_ssize_t, key_size=cython.longlong, stop=cython.Py_ssize_t, first=cython.ulonglong, second=cython.ulonglong, slot=cython.Py_ssize_t)
cdef Py_ssize_t _take_keys(const unsigned char* body, Py_ssize_t at, Py_ssize_t end, long long base_offset, long long from_offset, unsigned long long keys_max, unsigned long long[::1] table, long long[::1] found) noexcept nogil

cdef inline Py_ssize_t _take_keys_compiled(const unsigned char[::1] body, Py_ssize_t at, Py_ssize_t end, long long base_offset, long long from_offset, unsigned long long keys_max, unsigned long long[::1] table, long long[::1] found) noexcept:
    with nogil:
        return _take_keys(&body[0], at, end, base_offset, from_offset, keys_max, table, found)

cpdef int move_keys(unsigned long long[::1] old, unsigned long long[::1] new) except -1

@cython.locals(at=cython.Py_ssize_t, index=cython.Py_ssize_t, slot=cython.Py_ssize_t)
cdef void _move_keys(unsigned long long[::1] old, unsigned long long[::1] new) noexcept nogil

cdef inline void _move_keys_compiled(unsigned long long[::1] old, unsigned long long[::1] new) noexcept:
    with nogil:
        _move_keys(old, new)

cpdef Py_ssize_t retain(object body, Py_ssize_t at, Py_ssize_t end, long long base_offset, long long end_offset, bint tombstones, long long shift, unsigned long long[::1] table, object out, long long[::1] found) except? -3

@cython.locals(size=cython.Py_ssize_t, begin=cython.Py_ssize_t, delta=cython.longlong, offset=cython.longlong, key_at=cython.Py_ssize_t, key_size=cython.longlong, value_size=cython.longlong, first=cython.ulonglong, second=cython.ulonglong, last=cython.longlong)
cdef Py_ssize_t _retain(const unsigned char* body, Py_ssize_t at, Py_ssize_t end, long long base_offset, long long end_offset, bint tombstones, long long shift, unsigned long long[::1] table, unsigned char* out, bint writes, long long[::1] found) noexcept nogil

cdef inline Py_ssize_t _retain_compiled(const unsigned char[::1] body, Py_ssize_t at, Py_ssize_t end, long long base_offset, long long end_offset, bint tombstones, long long shift, unsigned long long[::1] table, unsigned char[::1] out, long long[::1] found) noexcept:
    cdef unsigned char* to = NULL
    if out is not None and out.shape[0]:
        to = &out[0]
    with nogil:
        return _retain(&body[0], at, end, base_offset, end_offset, tombstones, shift, table, to, to != NULL, found)

@cython.locals(attributes=cython.Py_ssize_t, index=cython.Py_ssize_t, _=cython.longlong)
cdef Py_ssize_t _keep(const unsigned char* body, Py_ssize_t at, Py_ssize_t end, long long delta, long long shift, unsigned char* out, Py_ssize_t to, bint writes) noexcept nogil

@cython.locals(zigzag=cython.ulonglong)
cdef Py_ssize_t _set(unsigned char* out, Py_ssize_t at, long long value, bint writes) noexcept nogil
