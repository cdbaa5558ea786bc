# The C types of _rows.py, for its compiled form. Nothing is defined here.
cimport cython
from libc.string cimport memcpy

cdef unsigned int _SEED, _WORD
cdef unsigned long long _LONG, _BASIS, _PRIME, _FIRST_FACTOR, _SECOND_FACTOR

cdef void _copy(unsigned char[::1] target, Py_ssize_t to, const unsigned char[::1] source, Py_ssize_t at, Py_ssize_t size) noexcept

@cython.locals(value=cython.uint, word=cython.uint, end=cython.Py_ssize_t, left=cython.int)
cdef unsigned int _murmur2(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size) noexcept

@cython.locals(end=cython.Py_ssize_t)
cdef unsigned long long _fed(unsigned long long value, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size) noexcept

@cython.locals(_=cython.int)
cdef unsigned long long _fed_number(unsigned long long value, unsigned long long number) noexcept

cdef unsigned long long _stirred(unsigned long long value) noexcept

@cython.locals(row=cython.Py_ssize_t, at=cython.Py_ssize_t, hashed=cython.uint)
cpdef object key_partitions(Column keys, int count, int keyless, int[::1] chosen)

@cython.locals(total=cython.Py_ssize_t, index=cython.Py_ssize_t, row=cython.Py_ssize_t, place=cython.int)
cpdef object order_by_partition(int[::1] chosen, Py_ssize_t count, int[::1] rows, int[::1] starts)

@cython.final
cdef class Column:
    cdef public Py_ssize_t rows, bit
    cdef bint nullable
    cdef const int[::1] offsets
    cdef const unsigned char[::1] data, bits

    @cython.locals(at=cython.Py_ssize_t)
    cdef bint has(self, Py_ssize_t row) noexcept

@cython.locals(zigzag=cython.ulonglong, size=cython.int)
cdef int _varint_size(long long value) noexcept

@cython.final
cdef class Rows:
    cdef Column keys, values, lists, names, contents
    cdef const long long[::1] timestamps
    cdef const int[::1] header_starts
    cdef bint stamped, with_headers
    cdef const unsigned char[::1] marks
    cdef Py_ssize_t mark_count, mark_size
    cdef long long now
    cdef unsigned char[::1] out
    cdef Py_ssize_t at
    cdef public Py_ssize_t done
    cdef public long long base_timestamp, max_timestamp

    @cython.locals(end=cython.Py_ssize_t, place=cython.Py_ssize_t, row=cython.Py_ssize_t, timestamp=cython.longlong, size=cython.longlong)
    cpdef Py_ssize_t encode(self, int[::1] rows, Py_ssize_t first, Py_ssize_t last, unsigned char[::1] out, Py_ssize_t at) except -1

    @cython.locals(size=cython.longlong, first=cython.Py_ssize_t, last=cython.Py_ssize_t, entry=cython.Py_ssize_t)
    cdef long long size_of(self, Py_ssize_t row, long long timestamp, long long offset) noexcept

    @cython.locals(size=cython.longlong, total=cython.longlong)
    cdef long long field_size(self, Column column, Py_ssize_t row) noexcept

    @cython.locals(zigzag=cython.ulonglong, at=cython.Py_ssize_t)
    cdef void put_varint(self, long long value) noexcept

    @cython.locals(start=cython.Py_ssize_t, size=cython.Py_ssize_t)
    cdef void put_field(self, Column column, Py_ssize_t row) noexcept

    @cython.locals(first=cython.Py_ssize_t, last=cython.Py_ssize_t, entry=cython.Py_ssize_t)
    cdef void put_headers(self, Py_ssize_t row) noexcept

    @cython.locals(
        start=cython.ulonglong, found=cython.ulonglong, value=cython.ulonglong, row=cython.Py_ssize_t,
        first=cython.Py_ssize_t, last=cython.Py_ssize_t, entry=cython.Py_ssize_t
    )
    cpdef unsigned long long hash_sum(self, const unsigned char[::1] seed, const int[::1] chosen, Py_ssize_t total)

    @cython.locals(at=cython.Py_ssize_t, size=cython.Py_ssize_t)
    cdef unsigned long long fed_field(self, Column column, Py_ssize_t row, unsigned long long value) noexcept
