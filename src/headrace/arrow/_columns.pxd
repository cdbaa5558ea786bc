# The C types of _columns.py, for its compiled form. Nothing is defined here.
cimport cython
from libc.string cimport memcpy

cdef long long _MILLISECONDS_MAX

cdef void _copy(unsigned char[::1] target, Py_ssize_t to, const unsigned char[::1] source, Py_ssize_t at, Py_ssize_t size) noexcept

cdef class Columns:
    cdef public Py_ssize_t row, rows, key_end, value_end, key_nulls, value_nulls
    cdef public Py_ssize_t entries, entry, name_end, content_end, header_nulls, content_nulls
    cdef public bint with_headers, bad
    cdef Py_ssize_t at
    cdef const unsigned char[::1] body
    cdef int[::1] key_offsets, value_offsets, types, header_starts, name_offsets, content_offsets
    cdef unsigned char[::1] key_data, value_data, key_bits, value_bits
    cdef unsigned char[::1] header_bits, name_data, content_data, content_bits
    cdef long long[::1] offsets, timestamps

    @cython.locals(size=cython.Py_ssize_t, length=cython.longlong, stop=cython.longlong, timestamp=cython.longlong,
        offset=cython.longlong, key_size=cython.longlong, key_at=cython.Py_ssize_t, value_size=cython.longlong,
        value_at=cython.Py_ssize_t, row=cython.Py_ssize_t, _=cython.Py_ssize_t)
    cpdef bint add(self, const unsigned char[::1] body, Py_ssize_t count, long long base_offset, long long base_timestamp,
        long long append_time, int timestamp_type, long long start, long long end)

    cdef void put(self, Py_ssize_t row, Py_ssize_t key_at, Py_ssize_t key_size, Py_ssize_t value_at, Py_ssize_t value_size) noexcept

    @cython.locals(_=cython.Py_ssize_t, count=cython.longlong, size=cython.longlong, entry=cython.Py_ssize_t)
    cdef bint add_headers(self, Py_ssize_t row, Py_ssize_t stop) noexcept

@cython.locals(value=cython.ulonglong, shift=cython.int, byte=cython.ulonglong, at=cython.Py_ssize_t)
cdef long long _next(Columns cursor, Py_ssize_t end) noexcept

cdef class HeaderCount(Columns):
    @cython.locals(_=cython.Py_ssize_t, size=cython.Py_ssize_t, length=cython.longlong, stop=cython.longlong, headers=cython.longlong, total=cython.longlong)
    cpdef long long measure(self, const unsigned char[::1] body, Py_ssize_t count)
