// NumPy arrays, made and read without a call into Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

namespace radixkv {

void import_numpy();

// An int32, int64 or bool array of `n` items, and where they are. Throws std::bad_alloc.
nanobind::object new_array(size_t n, int32_t*& items);
nanobind::object new_array(size_t n, int64_t*& items);
nanobind::object new_array(size_t n, bool*& items);

nanobind::object copy_array(const int32_t* items, size_t n);

// The same as int64.
nanobind::object copy_wide(const int32_t* items, size_t n);

// The items of an array of one dimension that lies in order in memory.
template <class Item>
struct ArrayView {
    const Item* items = nullptr;  // never null if there is one
    size_t size = 0;
    explicit operator bool() const { return items != nullptr; }
};

// The items of a NumPy array, which must be one.
void* array_data(nanobind::handle array);

// Empty unless `object` is exactly such a NumPy array of that type.
ArrayView<int32_t> view_int32(nanobind::handle object);

// The first `n` items of such an array, or all: a view, for a third of what a slice costs. Nothing:
// it is another object.
nanobind::object first_items(nanobind::handle object, size_t n);
ArrayView<int64_t> view_int64(nanobind::handle object);
ArrayView<double> view_double(nanobind::handle object);

// The same, to be written into; nullptr unless it is such an array, writable, of `size` items or
// more.
int32_t* writable_int32(nanobind::handle object, size_t size);

}  // namespace radixkv
