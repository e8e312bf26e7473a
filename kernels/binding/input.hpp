// Token ids and slots as callers pass them.
#pragma once

#include <climits>
#include <optional>

#include "arrays.hpp"
#include "list_key.hpp"
#include "python.hpp"

namespace radixkv {

inline bool fits(size_t size) { return size <= INT32_MAX; }

// Ids of a NumPy array or another buffer, read in place as long as this lives. Nothing else of
// Python is needed for that, so they are read without the GIL too.
class Buffer {
  public:
    explicit Buffer(nb::handle ids);
    ~Buffer() {
        if (held_) PyBuffer_Release(&buffer_);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    // Whether the ids are int32 or int64 in one dimension, contiguous and aligned.
    bool is_readable() const { return narrow_ || wide_; }

    // use(key); the buffer must be readable.
    template <class Use>
    auto read(const Use& use) const {
        if (narrow_) return use(Int32Key{narrow_.items, static_cast<uint32_t>(narrow_.size)});
        return use(Int64Key{wide_.items, static_cast<uint32_t>(wide_.size)});
    }

  private:
    void hold(nb::handle ids);
    template <class Int>
    ArrayView<Int> view() const;

    ArrayView<int32_t> narrow_;
    ArrayView<int64_t> wide_;
    Py_buffer buffer_{};
    bool held_ = false;
};

// The items of a list or tuple; empty for all else.
inline ArrayView<PyObject*> view_list(nb::handle ids) {
    static PyObject* const no_item = nullptr;  // what an empty list may point to
    if (PyList_CheckExact(ids.ptr())) {
        auto* list = reinterpret_cast<PyListObject*>(ids.ptr());
        return {list->ob_item ? list->ob_item : &no_item, static_cast<size_t>(Py_SIZE(list))};
    }
    if (PyTuple_CheckExact(ids.ptr())) {
        auto* tuple = reinterpret_cast<PyTupleObject*>(ids.ptr());
        return {tuple->ob_item, static_cast<size_t>(Py_SIZE(tuple))};
    }
    return {};
}

// The ids of a list, a tuple or an int array as an int32 array, an int32 array itself; None where
// one of them is not a token id, and for every other type.
nb::object read_ids(nb::handle ids);

// A copy of the ids in an array with room for a quarter more, and how many they are; None as above.
nb::object copy_ids(nb::handle ids);

// Writes the ids to `buffer` from `at` on; how many they are. None as above, or without room.
nb::object append_ids(nb::handle ids, nb::handle buffer, uint32_t at);

// as_token_ids(ids, name), or its error.
nb::object convert_token_ids(nb::handle ids, const char* name);

// The array that `as_token_ids` or `as_slots` gave, aligned.
nb::object aligned(nb::object array);

// Calls use(key), which returns nullopt if an id is not a token id; it must have changed nothing
// then. Such ids, and types that cannot be read in place, take the way through `as_token_ids`,
// which names what is wrong or converts.
//
// prepare() comes before: whatever may run Python code belongs there, because that may change a
// list.
template <class Prepare, class Use>
auto with_token_ids(nb::handle ids, const char* name, const Prepare& prepare, const Use& use) {
    using Answer = std::invoke_result_t<Use, Int32Key>;
    auto attempt_in_place = [&]() -> Answer {
        if (auto list = view_list(ids)) {
            if (!fits(list.size)) return std::nullopt;
            return use(ListKey{list.items, static_cast<uint32_t>(list.size)});
        }
        Buffer buffer(ids);
        return buffer.is_readable() ? buffer.read(use) : std::nullopt;
    };
    prepare();
    if (Answer answer = attempt_in_place()) return *std::move(answer);
    nb::object converted = convert_token_ids(ids, name);
    auto array = view_int32(converted);
    prepare();
    return *use(Int32Key{array.items, static_cast<uint32_t>(array.size), true});
}

// int32 slots, none of them negative; what was checked is not looked through again. Raises
// InvalidSlotsError, which names them `name`.
class Slots {
  public:
    explicit Slots(nb::handle slots, bool checked = false, const char* name = "slots");
    const int32_t* items() const { return view_.items; }
    size_t size() const { return view_.size; }

  private:
    nb::object converted_;
    ArrayView<int32_t> view_;
};

}  // namespace radixkv
