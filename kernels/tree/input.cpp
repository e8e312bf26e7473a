#include "input.hpp"

#include <cstring>

namespace radixkv {

namespace {

// The types whose buffers are read without running any Python code.
bool has_plain_buffer(nb::handle object) {
    return PyMemoryView_Check(object.ptr()) || object.type().is(python().array_type);
}

}  // namespace

Buffer::Buffer(nb::handle object) {
    if (!has_plain_buffer(object)) return;
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_FORMAT | PyBUF_ND) < 0) {
        PyErr_Clear();
        return;
    }
    held_ = true;
    is_signed_ = buffer_.format && std::strlen(buffer_.format) == 1 &&
                 std::strchr("ilq", buffer_.format[0]) != nullptr;
}

ArrayView<int32_t> view_bytes(nb::handle object) {
    const char* items;
    size_t size;
    if (PyBytes_CheckExact(object.ptr())) {
        items = PyBytes_AS_STRING(object.ptr());
        size = PyBytes_GET_SIZE(object.ptr());
    } else if (PyByteArray_CheckExact(object.ptr())) {
        items = PyByteArray_AS_STRING(object.ptr());
        size = PyByteArray_GET_SIZE(object.ptr());
    } else {
        return {};
    }
    if (size % 4 || reinterpret_cast<uintptr_t>(items) % 4) return {};
    return {reinterpret_cast<const int32_t*>(items), size / 4};
}

nb::object read_list(nb::handle ids) {
    if (!PyList_CheckExact(ids.ptr()) && !PyTuple_CheckExact(ids.ptr())) return nb::none();
    size_t size = PySequence_Fast_GET_SIZE(ids.ptr());
    if (!fits(size)) return nb::none();
    int32_t* out;
    nb::object array = new_array(size, out);
    ListKey key{PySequence_Fast_ITEMS(ids.ptr()), static_cast<uint32_t>(size)};
    return key.copy(0, key.size, out) ? array : nb::none();
}

nb::object aligned(nb::object array) { return view_int32(array) ? array : array.attr("copy")(); }

nb::object convert_token_ids(nb::handle ids, const char* name) {
    nb::object array = aligned(python().as_token_ids(ids, name));
    if (!fits(view_int32(array).size)) {
        raise(python().InvalidTokensError, std::string(name) + " has " +
                                               std::to_string(view_int32(array).size) +
                                               " ids; it takes up to 2**31 - 1");
    }
    return array;
}

Slots::Slots(nb::handle slots) : view_(view_int32(slots)) {
    if (view_ && fits(view_.size) && !has_negative(view_.items, view_.size)) return;
    converted_ = aligned(python().as_slots(slots));
    view_ = view_int32(converted_);
}

}  // namespace radixkv
