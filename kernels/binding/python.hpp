// What the core needs of radixkv's own Python code, looked up once.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <array>
#include <string>

namespace radixkv {

namespace nb = nanobind;

struct Imports {
    nb::object InvalidArgumentError, InvalidSlotsError, InvalidTokensError, NotLockedError;
    nb::object OutOfSlotsError, SlotNotAllocatedError, StaleHandleError;
    nb::object AdmitResult, InsertFromResult, InsertResult, MatchResult, NodeInfo, NO_CHANGES,
        PublishResult, Stored;
    nb::object KeptPath, no_shares, NodeFacts, ShareSizes, Trimmed;
    std::array<nb::object, 5> stored_fields;  // their names
    std::array<nb::object, 2> trimmed_fields;
    nb::object Namespace, default_namespace;
    nb::object array_type, deque, no_slots, zeros;
    nb::object ContentTable, count_codes, hash_space;
    nb::object asarray, as_int, at_least, as_slots, as_token_ids, between, check_namespace,
        check_pool_shape, check_range, check_whole_pages, get_policy, shares_in_pages;
};

// Imports NumPy and what is listed above.
void import_python();

const Imports& python();

// Raises error(message, **details).
template <class... Details>
[[noreturn]] void raise(const nb::object& error, const std::string& message, Details&&... details) {
    nb::object instance = error(message, std::forward<Details>(details)...);
    PyErr_SetObject(error.ptr(), instance.ptr());
    throw nb::python_error();
}

// An instance of a NamedTuple, without its constructor written in Python.
template <class... Items>
nb::object named_tuple(const nb::object& type, Items&&... items) {
    auto* of = reinterpret_cast<PyTypeObject*>(type.ptr());
    PyObject* tuple = of->tp_alloc(of, sizeof...(items));
    if (!tuple) throw nb::python_error();
    Py_ssize_t at = 0;
    (PyTuple_SET_ITEM(tuple, at++, nb::cast(std::forward<Items>(items)).release().ptr()), ...);
    return nb::steal(tuple);
}

// An integer as long as it fits, else the largest or smallest that does. Raises
// InvalidArgumentError.
int64_t clamp_int(nb::handle object, const char* name);

// repr(object), for messages.
std::string show(nb::handle object);

}  // namespace radixkv
