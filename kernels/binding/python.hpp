// What the core needs of radixkv's own Python code, looked up once.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <array>
#include <new>
#include <string>

namespace radixkv {

namespace nb = nanobind;

struct Imports {
    nb::object InvalidArgumentError, InvalidSlotsError, InvalidTokensError, NotLockedError;
    nb::object OutOfMemoryError, OutOfSlotsError, SlotNotAllocatedError, StaleHandleError;
    nb::object AdmitResult, InsertFromResult, InsertResult, MatchResult, NodeInfo, NO_CHANGES,
        PublishResult, Stored;
    nb::object KeptPath, no_shares, NodeFacts, ShareSizes, Trimmed;
    std::array<nb::object, 5> stored_fields;  // their names
    std::array<nb::object, 2> trimmed_fields;
    nb::object Namespace, default_namespace;
    nb::object array_type, deque, no_slots, zeros;
    nb::object ContentTable, count_codes, hash_space;
    nb::object asarray, as_flag, as_int, at_least, as_slots, as_token_ids, between, check_namespace,
        check_pool_shape, check_range, check_whole_pages, get_policy, shares_in_pages;
};

// Imports NumPy and what is listed above; std::bad_alloc becomes OutOfMemoryError from now on.
void import_python();

const Imports& python();

// Raises error(message, **details).
template <class... Details>
[[noreturn]] void raise(const nb::object& error, const std::string& message, Details&&... details) {
    nb::object instance = error(message, std::forward<Details>(details)...);
    PyErr_SetObject(error.ptr(), instance.ptr());
    throw nb::python_error();
}

// Memory ran out, in the interpreter or here, and nothing has changed.
[[noreturn]] inline void raise_out_of_memory() {
    PyErr_Clear();
    throw std::bad_alloc();
}

// An instance of a NamedTuple of `size` fields, all None for now.
inline nb::object new_named_tuple(const nb::object& type, Py_ssize_t size) {
    auto* of = reinterpret_cast<PyTypeObject*>(type.ptr());
    PyObject* tuple = of->tp_alloc(of, size);
    if (!tuple) raise_out_of_memory();
    for (Py_ssize_t at = 0; at < size; ++at) PyTuple_SET_ITEM(tuple, at, Py_NewRef(Py_None));
    return nb::steal(tuple);
}

// Sets an item of a tuple that nothing has read yet.
inline void set_item(const nb::object& tuple, Py_ssize_t at, nb::object item) noexcept {
    Py_DECREF(PyTuple_GET_ITEM(tuple.ptr(), at));
    PyTuple_SET_ITEM(tuple.ptr(), at, item.release().ptr());
}

// An instance of a NamedTuple, without its constructor written in Python.
template <class... Items>
nb::object named_tuple(const nb::object& type, Items&&... items) {
    nb::object tuple = new_named_tuple(type, sizeof...(items));
    Py_ssize_t at = 0;
    (set_item(tuple, at++, nb::cast(std::forward<Items>(items))), ...);
    return tuple;
}

// An integer as long as it fits, else the largest or smallest that does. Raises
// InvalidArgumentError.
int64_t clamp_int(nb::handle object, const char* name);

// repr(object), for messages.
std::string show(nb::handle object);

}  // namespace radixkv
