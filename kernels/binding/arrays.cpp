#include "arrays.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

namespace nb = nanobind;

namespace radixkv {

void import_numpy() {
    if (PyArray_ImportNumPyAPI() < 0) throw nb::python_error();
}

namespace {

template <class Item>
nb::object new_array_of(int type, size_t n, Item*& items) {
    npy_intp size = static_cast<npy_intp>(n);
    PyObject* array = PyArray_SimpleNew(1, &size, type);
    if (!array) {
        PyErr_Clear();
        throw std::bad_alloc();
    }
    items = static_cast<Item*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)));
    return nb::steal(array);
}

}  // namespace

nb::object new_array(size_t n, int32_t*& items) { return new_array_of(NPY_INT32, n, items); }

nb::object new_array(size_t n, int64_t*& items) { return new_array_of(NPY_INT64, n, items); }

nb::object new_array(size_t n, bool*& items) { return new_array_of(NPY_BOOL, n, items); }

nb::object copy_array(const int32_t* items, size_t n) {
    int32_t* out;
    nb::object array = new_array(n, out);
    if (n) std::memcpy(out, items, 4 * n);
    return array;
}

nb::object copy_wide(const int32_t* items, size_t n) {
    int64_t* out;
    nb::object array = new_array(n, out);
    std::copy_n(items, n, out);
    return array;
}

void* array_data(nb::handle array) {
    return PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr()));
}

namespace {

template <class Item>
ArrayView<Item> view(nb::handle object) {
    if (!PyArray_CheckExact(object.ptr())) return {};
    auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
    const PyArray_Descr* dtype = PyArray_DESCR(array);
    constexpr char kind = std::is_integral_v<Item> ? 'i' : 'f';
    bool is_plain = dtype->kind == kind && PyArray_ITEMSIZE(array) == sizeof(Item) &&
                    PyArray_NDIM(array) == 1 && PyArray_ISCARRAY_RO(array);
    if (!is_plain) return {};
    return {static_cast<const Item*>(PyArray_DATA(array)),
            static_cast<size_t>(PyArray_SIZE(array))};
}

}  // namespace

ArrayView<int32_t> view_int32(nb::handle object) { return view<int32_t>(object); }

nb::object first_items(nb::handle object, size_t n) {
    auto array = view_int32(object);
    if (!array) return {};
    auto* whole = reinterpret_cast<PyArrayObject*>(object.ptr());
    npy_intp size = static_cast<npy_intp>(std::min(n, array.size));
    PyObject* first = PyArray_New(&PyArray_Type, 1, &size, NPY_INT32, nullptr, PyArray_DATA(whole),
                                  0, NPY_ARRAY_CARRAY_RO, nullptr);
    if (!first) throw nb::python_error();
    nb::object owned = nb::steal(first);
    Py_INCREF(object.ptr());
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(first), object.ptr()) < 0)
        throw nb::python_error();
    return owned;
}

int32_t* writable_int32(nb::handle object, size_t size) {
    auto array = view_int32(object);
    if (!array || array.size < size) return nullptr;
    auto* own = reinterpret_cast<PyArrayObject*>(object.ptr());
    return PyArray_ISWRITEABLE(own) ? static_cast<int32_t*>(PyArray_DATA(own)) : nullptr;
}

ArrayView<int64_t> view_int64(nb::handle object) { return view<int64_t>(object); }

ArrayView<double> view_double(nb::handle object) { return view<double>(object); }

}  // namespace radixkv
