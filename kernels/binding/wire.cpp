#include "wire.hpp"

#include <bit>
#include <cstring>

#include "arrays.hpp"
#include "tree/keys.hpp"

namespace radixkv {

static_assert(std::endian::native == std::endian::little, "packed ids are little-endian");

namespace {

// What is left of a message. What cannot be read leaves it bad.
class Wire {
  public:
    Wire(const char* at, size_t size) : at_(at), left_(size) {}

    bool is_good() const { return is_good_; }
    bool is_empty() const { return left_ == 0; }

    uint64_t varint() {
        uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            Wire byte = take(1);
            if (!is_good_) return 0;
            value |= static_cast<uint64_t>(*byte.at_ & 127) << shift;
            if (!(*byte.at_ & 128)) return value;
        }
        is_good_ = false;
        return 0;
    }

    // The next bytes.
    Wire take(uint64_t size) {
        if (size > left_) is_good_ = false;
        if (!is_good_) return {at_, 0};
        Wire taken(at_, size);
        at_ += size;
        left_ -= size;
        return taken;
    }

    // The value of a field of that type, but for its length.
    Wire value(uint32_t type) {
        switch (type) {
            case VARINT:
                varint();
                return {at_, 0};
            case FIXED64:
                return take(8);
            case BYTES:
                return take(varint());
            case FIXED32:
                return take(4);
        }
        is_good_ = false;
        return {at_, 0};
    }

    // The bytes as an int32 array; an empty object if they are not token ids.
    nb::object token_ids() const {
        if (!left_ || left_ % sizeof(int32_t) || left_ / sizeof(int32_t) > INT32_MAX) return {};
        int32_t* ids;
        nb::object array = new_array(left_ / sizeof(int32_t), ids);
        std::memcpy(ids, at_, left_);
        bool is_bad = has_negative(ids, static_cast<uint32_t>(left_ / sizeof(int32_t)));
        return is_bad ? nb::object() : array;
    }

    static constexpr uint32_t VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5;

  private:
    const char* at_;
    size_t left_;
    bool is_good_ = true;
};

// The ids of a sequence that has nothing else.
nb::object read_sequence(Wire sequence, uint64_t packed_tag) {
    if (sequence.varint() != packed_tag) return {};
    Wire packed = sequence.value(Wire::BYTES);
    if (!sequence.is_good() || !sequence.is_empty()) return {};
    return packed.token_ids();
}

}  // namespace

nb::object read_message_ids(nb::bytes message, uint32_t sequences, uint32_t packed) {
    nb::list found;
    Wire wire(message.c_str(), message.size());
    while (!wire.is_empty()) {
        uint64_t tag = wire.varint();
        Wire value = wire.value(tag & 7);
        if (!wire.is_good()) return nb::none();
        if (tag >> 3 != sequences) continue;
        nb::object ids;
        if ((tag & 7) == Wire::BYTES) ids = read_sequence(value, packed << 3 | Wire::BYTES);
        if (!ids.is_valid()) return nb::none();
        found.append(std::move(ids));
    }
    return found;
}

}  // namespace radixkv
