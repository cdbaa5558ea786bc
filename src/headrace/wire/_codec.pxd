# The C types of _codec.py, for its compiled form. Nothing is defined here.
cimport cython

cdef int _SMALLEST

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
