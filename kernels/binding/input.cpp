#include "input.hpp"

#include <cstring>

namespace radixkv {

namespace {

// The types whose buffers are read without running any Python code.
bool has_plain_buffer(nb::handle object) {
    return PyMemoryView_Check(object.ptr()) || object.type().is(python().array_type);
}

}  // namespace

Buffer::Buffer(nb::handle ids) : narrow_(view_int32(ids)) {
    if (!narrow_) wide_ = view_int64(ids);
    if (!is_readable()) hold(ids);
    if (!fits(std::max(narrow_.size, wide_.size))) narrow_ = {}, wide_ = {};
}

// `bytes` and bytearrays are int32; a buffer that is held cannot change its size.
void Buffer::hold(nb::handle ids) {
    bool is_bytes = PyBytes_CheckExact(ids.ptr()) || PyByteArray_CheckExact(ids.ptr());
    if (!is_bytes && !has_plain_buffer(ids)) return;
    if (PyObject_GetBuffer(ids.ptr(), &buffer_, PyBUF_FORMAT | PyBUF_ND) < 0) {
        PyErr_Clear();
        return;
    }
    held_ = true;
    bool is_signed = buffer_.format && std::strlen(buffer_.format) == 1 &&
                     std::strchr("ilq", buffer_.format[0]) != nullptr;
    if (buffer_.ndim != 1 || !(is_bytes || is_signed)) return;
    if (is_bytes || buffer_.itemsize == 4) narrow_ = view<int32_t>();
    if (!is_bytes && buffer_.itemsize == 8) wide_ = view<int64_t>();
}

template <class Int>
ArrayView<Int> Buffer::view() const {
    auto* items = static_cast<const Int*>(buffer_.buf);
    size_t size = static_cast<size_t>(buffer_.len);
    if (size % sizeof(Int) || reinterpret_cast<uintptr_t>(items) % alignof(Int)) return {};
    return {items, size / sizeof(Int)};
}

namespace {

template <class Key>
nb::object copied(const Key& key, size_t room = 0) {
    int32_t* out;
    nb::object array = new_array(key.size + room, out);
    return key.copy(0, key.size, out) ? array : nb::none();
}

template <class Key>
nb::object copied_with_room(const Key& key) {
    nb::object buffer = copied(key, key.size / 4 + 16);
    return buffer.is_none() ? buffer : nb::make_tuple(buffer, key.size);
}

// What use(key) answers; None for types that cannot be read in place.
template <class Use>
nb::object read_in_place(nb::handle ids, const Use& use) {
    if (auto list = view_list(ids); list && fits(list.size))
        return use(ListKey{list.items, static_cast<uint32_t>(list.size)});
    if (auto array = view_int32(ids); array && fits(array.size))
        return use(Int32Key{array.items, static_cast<uint32_t>(array.size)});
    if (auto array = view_int64(ids); array && fits(array.size))
        return use(Int64Key{array.items, static_cast<uint32_t>(array.size)});
    return nb::none();
}

}  // namespace

nb::object read_ids(nb::handle ids) {
    if (auto list = view_list(ids)) {
        if (!fits(list.size)) return nb::none();
        return copied(ListKey{list.items, static_cast<uint32_t>(list.size)});
    }
    if (auto array = view_int32(ids); array && fits(array.size)) {
        bool is_good = !has_negative(array.items, static_cast<uint32_t>(array.size));
        return is_good ? nb::borrow(ids) : nb::none();
    }
    if (auto array = view_int64(ids); array && fits(array.size))
        return copied(Int64Key{array.items, static_cast<uint32_t>(array.size)});
    return nb::none();
}

nb::object copy_ids(nb::handle ids) {
    return read_in_place(ids, [](const auto& key) { return copied_with_room(key); });
}

nb::object append_ids(nb::handle ids, nb::handle buffer, uint32_t at) {
    return read_in_place(ids, [&](const auto& key) {
        int32_t* out = writable_int32(buffer, size_t{at} + key.size);
        bool is_read = out && key.copy(0, key.size, out + at);
        return is_read ? nb::object(nb::int_(key.size)) : nb::none();
    });
}

nb::object aligned(nb::object array) { return view_int32(array) ? array : array.attr("copy")(); }

nb::object convert_token_ids(nb::handle ids, const char* name) {
    nb::object array = aligned(python().as_token_ids(ids, name));
    if (!fits(view_int32(array).size)) {
        raise(python().InvalidTokensError, std::string(name) +
                                               " must have at most 2**31 - 1 ids; got " +
                                               std::to_string(view_int32(array).size));
    }
    return array;
}

Slots::Slots(nb::handle slots, bool checked, const char* name) : view_(view_int32(slots)) {
    if (view_ && fits(view_.size) && (checked || !has_negative(view_.items, view_.size))) return;
    converted_ = aligned(python().as_slots(slots, name));
    view_ = view_int32(converted_);
}

}  // namespace radixkv
