// A set of holders for each node: bits, side by side.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <new>
#include <vector>

namespace radixkv {

// A set takes a bit a holder, whether it has one or all: at 1,024 holders 128 bytes, as little next
// to the tokens of a node (4 bytes each) as what the node itself takes. In return no change of a
// set takes memory, so none can fail half way.
class HolderSets {
  public:
    using Word = uint64_t;

    // Room for that many sets and holders; what is there stays. Each grows by itself: one more
    // holder costs nothing in sets, one more set nothing in holders.
    void reserve(size_t sets, size_t holders) {
        size_t words = words_for(holders);
        size_t width = words <= width_ ? width_ : std::max(words, width_ + width_ / 4);
        size_t room = sets <= room_ ? room_ : std::max(sets, room_ + room_ / 2);
        if (width != width_ || room != room_) resize(room, width);
    }

    // Gives back what so few holders do not need, if that is half or more and memory allows it.
    // Holders beyond are in no set.
    void shrink(size_t holders) noexcept {
        if (words_for(holders) * 2 > width_) return;
        try {
            resize(room_, words_for(holders));
        } catch (const std::bad_alloc&) {
        }
    }

    size_t num_bytes() const { return words_.capacity() * sizeof(Word); }
    size_t width() const { return width_; }
    const Word* operator[](size_t set) const { return &words_[set * width_]; }

    bool has(size_t set, uint32_t holder) const {
        assert(holder / 64 < width_);
        return (*this)[set][holder / 64] >> (holder % 64) & 1;
    }
    void add(size_t set, uint32_t holder) {
        assert(holder / 64 < width_);
        at(set)[holder / 64] |= bit(holder);
    }
    void remove(size_t set, uint32_t holder) { at(set)[holder / 64] &= ~bit(holder); }
    void copy(size_t set, size_t from) { std::copy_n((*this)[from], width_, at(set)); }
    void clear(size_t set) { std::fill_n(at(set), width_, 0); }

    bool is_empty(size_t set) const {
        return std::all_of((*this)[set], (*this)[set] + width_, [](Word word) { return !word; });
    }
    // Whether `holder` is the only one in the set.
    bool is_only(size_t set, uint32_t holder) const {
        for (size_t i = 0; i < width_; ++i) {
            if ((*this)[set][i] != (i == holder / 64 ? bit(holder) : 0)) return false;
        }
        return true;
    }
    bool is_equal(size_t set, size_t other) const {
        return std::equal((*this)[set], (*this)[set] + width_, (*this)[other]);
    }

    static Word bit(uint32_t holder) { return Word{1} << (holder % 64); }

  private:
    static size_t words_for(size_t holders) { return std::max<size_t>(1, (holders + 63) / 64); }

    void resize(size_t room, size_t width) {
        std::vector<Word> resized(room * width);
        size_t kept = std::min(width, width_);
        for (size_t set = 0; set < std::min(room, room_); ++set) {
            std::copy_n(&words_[set * width_], kept, &resized[set * width]);
        }
        words_.swap(resized);
        room_ = room;
        width_ = width;
    }

    Word* at(size_t set) {
        assert((set + 1) * width_ <= words_.size());
        return &words_[set * width_];
    }

    std::vector<Word> words_;
    size_t room_ = 0;   // sets
    size_t width_ = 1;  // words a set
};

// Calls use(holder) for each bit of a word that begins with holder `first`.
template <class Use>
void each_holder(HolderSets::Word word, uint32_t first, const Use& use) {
    for (; word; word &= word - 1) use(first + static_cast<uint32_t>(std::countr_zero(word)));
}

}  // namespace radixkv
