// Token ids and slots as callers pass them.
#pragma once

#include <climits>
#include <optional>

#include "arrays.hpp"
#include "list_key.hpp"
#include "python.hpp"

namespace radixkv {

// Holds the buffer of an `array.array` or a memoryview while its ids are read.
class Buffer {
  public:
    explicit Buffer(nb::handle object);
    ~Buffer() {
        if (held_) PyBuffer_Release(&buffer_);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    // Empty unless these are `Int`s in order and in place.
    template <class Int>
    ArrayView<Int> view() const {
        if (!held_ || buffer_.itemsize != sizeof(Int) || buffer_.ndim != 1 || !is_signed_)
            return {};
        auto* items = static_cast<const Int*>(buffer_.buf);
        if (reinterpret_cast<uintptr_t>(items) % alignof(Int)) return {};
        return {items, static_cast<size_t>(buffer_.len) / sizeof(Int)};
    }

  private:
    Py_buffer buffer_{};
    bool held_ = false;
    bool is_signed_ = false;
};

// The items of `bytes` or a bytearray read as int32; empty for all else.
ArrayView<int32_t> view_bytes(nb::handle object);

// The ids of a list or tuple as an int32 array; None where one of them is no token id, or where it
// is neither.
nb::object read_list(nb::handle ids);

// as_token_ids(ids, name), or its error.
nb::object convert_token_ids(nb::handle ids, const char* name);

// The array that `as_token_ids` or `as_slots` gave, aligned.
nb::object aligned(nb::object array);

inline bool fits(size_t size) { return size <= INT32_MAX; }

// Calls use(key), which answers nothing if it met what is no token id; it must have changed nothing
// then. Such ids, and types that cannot be read in place, take the way through `as_token_ids`,
// which names what is wrong or converts.
//
// prepare() comes before: whatever may run Python code belongs there, because that may change a
// list.
template <class Prepare, class Use>
auto with_token_ids(nb::handle ids, const char* name, const Prepare& prepare, const Use& use) {
    using Answer = std::invoke_result_t<Use, Int32Key>;
    auto attempt = [&](auto key, size_t size) -> Answer {
        if (!fits(size)) return std::nullopt;
        key.size = static_cast<uint32_t>(size);
        return use(key);
    };
    auto attempt_in_place = [&]() -> Answer {
        if (PyList_CheckExact(ids.ptr())) {
            auto* list = reinterpret_cast<PyListObject*>(ids.ptr());
            return attempt(ListKey{list->ob_item, 0}, Py_SIZE(list));
        }
        if (auto array = view_int32(ids)) return attempt(Int32Key{array.items, 0}, array.size);
        if (auto array = view_int64(ids)) return attempt(Int64Key{array.items, 0}, array.size);
        if (PyTuple_CheckExact(ids.ptr())) {
            auto* tuple = reinterpret_cast<PyTupleObject*>(ids.ptr());
            return attempt(ListKey{tuple->ob_item, 0}, Py_SIZE(tuple));
        }
        if (auto array = view_bytes(ids)) return attempt(Int32Key{array.items, 0}, array.size);
        Buffer buffer(ids);
        if (auto array = buffer.view<int32_t>()) {
            return attempt(Int32Key{array.items, 0}, array.size);
        }
        if (auto array = buffer.view<int64_t>()) {
            return attempt(Int64Key{array.items, 0}, array.size);
        }
        return std::nullopt;
    };
    prepare();
    if (Answer answer = attempt_in_place()) return *std::move(answer);
    nb::object converted = convert_token_ids(ids, name);
    auto array = view_int32(converted);
    prepare();
    return *use(Int32Key{array.items, static_cast<uint32_t>(array.size), true});
}

// int32 slots, all of them good. Raises InvalidSlotsError.
class Slots {
  public:
    explicit Slots(nb::handle slots);
    const int32_t* items() const { return view_.items; }
    size_t size() const { return view_.size; }

  private:
    nb::object converted_;
    ArrayView<int32_t> view_;
};

}  // namespace radixkv
