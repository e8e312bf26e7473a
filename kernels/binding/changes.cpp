#include "changes.hpp"

#include "arrays.hpp"

namespace radixkv {

namespace {

// An instance of a frozen dataclass with slots, without its constructor written in Python.
template <size_t N>
nb::object frozen(const nb::object& type, const std::array<nb::object, N>& names,
                  const std::array<nb::object, N>& values) {
    auto* of = reinterpret_cast<PyTypeObject*>(type.ptr());
    nb::object instance = nb::steal(of->tp_alloc(of, 0));
    if (!instance) throw nb::python_error();
    for (size_t i = 0; i < N; ++i) {
        if (PyObject_GenericSetAttr(instance.ptr(), names[i].ptr(), values[i].ptr()) < 0)
            throw nb::python_error();
    }
    return instance;
}

Py_ssize_t size_of(PyObject* self) {
    return static_cast<Py_ssize_t>(nb::inst_ptr<Changes>(self)->size());
}

// Every request asks whether anything changed: a slot needs no look-up of a method.
PyType_Slot slots[] = {{Py_sq_length, reinterpret_cast<void*>(size_of)}, {0, nullptr}};

}  // namespace

uint64_t Changes::num_bytes() const {
    uint64_t size = 0;
    for (const Change& change : changes_) {
        if (!change.codes) continue;
        size += sizeof(int32_t) * view_int32(change.codes).size;
        // The default namespace has no texts.
        if (change.space.is(python().default_namespace)) continue;
        size += nb::cast<uint64_t>(nb::object(change.space.attr("num_bytes")));
    }
    return size;
}

nb::list Changes::made() const {
    nb::list made;
    for (const Change& change : changes_) {
        if (change.codes) {
            made.append(frozen<5>(python().Stored, python().stored_fields,
                                  {nb::cast(change.run), nb::cast(change.parent_run),
                                   nb::cast(change.parent_offset), change.codes, change.space}));
        } else {
            made.append(frozen<2>(python().Trimmed, python().trimmed_fields,
                                  {nb::cast(change.run), nb::cast(change.keep)}));
        }
    }
    return made;
}

void bind_changes(nb::module_& module) {
    nb::class_<Changes>(module, "Changes", nb::type_slots(slots))
        .def_prop_ro("num_bytes", &Changes::num_bytes)
        .def("__iter__", [](const Changes& self) { return nb::iter(self.made()); });
}

}  // namespace radixkv
