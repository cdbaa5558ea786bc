# The C types of _produce.py, for its compiled form. Nothing is defined here but how it gets at memory.
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

from headrace.wire._walk cimport _largest

cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char* mem, Py_ssize_t size, int flags)
    int PyBUF_READ

cdef int _NOT_PLAIN
cdef Py_ssize_t _HEADER_BYTES
cdef Py_ssize_t _ATTRIBUTES_AT
cdef Py_ssize_t _CHECKED_FROM
cdef int _SPECIAL_BITS
cdef int _CODEC_BITS
cdef int _CODEC_MAX
cdef int _LENGTH_BYTES_MAX

@cython.locals(value=cython.longlong, index=cython.Py_ssize_t)
cdef long long _big(const unsigned char* data, Py_ssize_t at, Py_ssize_t count) noexcept nogil

@cython.locals(index=cython.Py_ssize_t)
cdef void _put(unsigned char* data, Py_ssize_t at, Py_ssize_t count, long long value) noexcept nogil

@cython.locals(index=cython.Py_ssize_t, found=cython.bint, one=list)
cpdef bint records_of(object frame, Py_ssize_t at, Py_ssize_t end, list gaps, int forbidden, long long[::1] places, list chunks) except? -1

@cython.locals(last=cython.Py_ssize_t, index=cython.Py_ssize_t, size=cython.Py_ssize_t, shift=cython.int, byte=cython.Py_ssize_t, gap=bytes)
cdef bint _places(const unsigned char* frame, Py_ssize_t at, Py_ssize_t end, list gaps, int forbidden, long long[::1] places) except? -1

@cython.locals(index=cython.Py_ssize_t)
cdef bint _same(const unsigned char* frame, Py_ssize_t at, const unsigned char* gap, Py_ssize_t size) noexcept nogil

cdef inline bint _places_compiled(object frame, Py_ssize_t at, Py_ssize_t end, list gaps, int forbidden, long long[::1] places) except? -1:
    cdef Py_buffer held
    PyObject_GetBuffer(frame, &held, PyBUF_SIMPLE)
    try:
        return _places(<const unsigned char*>held.buf, at, end, gaps, forbidden, places)
    finally:
        PyBuffer_Release(&held)

@cython.locals(count=cython.Py_ssize_t, index=cython.Py_ssize_t, sequenced=cython.int, newest=cython.longlong, records=cython.longlong, timestamp=cython.longlong, is_sequenced=cython.longlong)
cpdef int check(list chunks, long long latest, long long most, object crc, long long[::1] found) except? -3

@cython.locals(records=cython.longlong, timestamp=cython.longlong, sequenced=cython.longlong, base_timestamp=cython.longlong)
cdef (long long, long long, long long) _checked(object chunk, long long latest, long long most, object crc)

@cython.locals(attributes=cython.int, records=cython.longlong, timestamp=cython.longlong, sequenced=cython.longlong)
cdef (long long, long long, long long) _header(const unsigned char* data, Py_ssize_t size, long long latest, long long most) noexcept nogil

cdef inline (long long, long long, long long) _checked_compiled(object chunk, long long latest, long long most, object crc):
    cdef Py_buffer held
    cdef (long long, long long, long long) read
    cdef (long long, long long, long long) nothing = (0, 0, 0)
    cdef const unsigned char* data
    cdef object covered
    PyObject_GetBuffer(chunk, &held, PyBUF_SIMPLE)
    try:
        data = <const unsigned char*>held.buf
        if held.readonly:
            return nothing
        read = _header(data, held.len, latest, most)
        if read[0] <= 0:
            return nothing
        if not data[_ATTRIBUTES_AT] & _CODEC_BITS and _largest(data, _HEADER_BYTES, held.len, read[0], _big(data, 27, 8)) != read[1]:
            return nothing
        covered = PyMemoryView_FromMemory(<char*>data + _CHECKED_FROM, held.len - _CHECKED_FROM, PyBUF_READ)
        if <unsigned long long>crc(covered) != <unsigned long long>(_big(data, 17, 4) & 0xFFFFFFFF):
            return nothing
        return read
    finally:
        PyBuffer_Release(&held)

@cython.locals(index=cython.Py_ssize_t)
cpdef int stamp(list chunks, long long[::1] offsets, long long leader_epoch) except -1

cdef void _stamp(unsigned char* data, long long offset, long long leader_epoch) noexcept nogil

cdef inline int _stamp_compiled(object chunk, long long offset, long long leader_epoch) except -1:
    cdef Py_buffer held
    PyObject_GetBuffer(chunk, &held, PyBUF_WRITABLE)
    _stamp(<unsigned char*>held.buf, offset, leader_epoch)
    PyBuffer_Release(&held)
    return 0

cpdef int put(bytearray block, Py_ssize_t at, Py_ssize_t step, Py_ssize_t count, Py_ssize_t width, long long[::1] values, Py_ssize_t first) except -1

@cython.locals(index=cython.Py_ssize_t)
cdef void _put_all(unsigned char* block, Py_ssize_t at, Py_ssize_t step, Py_ssize_t count, Py_ssize_t width, long long[::1] values, Py_ssize_t first) noexcept nogil

cdef inline int _put_all_compiled(bytearray block, Py_ssize_t at, Py_ssize_t step, Py_ssize_t count, Py_ssize_t width, long long[::1] values, Py_ssize_t first) except -1:
    cdef char* data = block
    _put_all(<unsigned char*>data, at, step, count, width, values, first)
    return 0
