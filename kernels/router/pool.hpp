// Records addressed by number, which never move.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

namespace radixkv {

// Numbers begin at 1 and are used again.
template <class Record>
class Pool {
  public:
    using Id = uint32_t;

    Record& operator[](Id id) {
        assert(id < used_);
        return chunks_[id >> CHUNK_BITS][id & (CHUNK - 1)];
    }
    const Record& operator[](Id id) const {
        assert(id < used_);
        return chunks_[id >> CHUNK_BITS][id & (CHUNK - 1)];
    }

    // One more than the largest number that was ever in use.
    Id bound() const { return used_; }

    size_t num_bytes() const {
        return (chunks_.size() << CHUNK_BITS) * sizeof(Record) + free_.capacity() * sizeof(Id);
    }

    // Makes sure that the next `count` calls of `add`, and all of `remove`, cannot fail.
    void reserve(Id count) {
        while (chunks_.size() << CHUNK_BITS < size_t{used_} + count) {
            chunks_.push_back(std::make_unique<Record[]>(CHUNK));
        }
        if (free_.capacity() < size_t{used_} + count) free_.reserve(2 * (size_t{used_} + count));
    }

    Id add() {
        reserve(1);
        Id id = used_;
        if (free_.empty()) {
            ++used_;
        } else {
            id = free_.back();
            free_.pop_back();
        }
        (*this)[id] = Record{};
        return id;
    }

    void remove(Id id) {
        assert(0 < id && id < used_ && free_.size() < used_);
        (*this)[id] = Record{};
        free_.push_back(id);
    }

  private:
    static constexpr unsigned CHUNK_BITS = 10;
    static constexpr Id CHUNK = 1u << CHUNK_BITS;

    std::vector<std::unique_ptr<Record[]>> chunks_;
    std::vector<Id> free_;
    Id used_ = 1;
};

}  // namespace radixkv
