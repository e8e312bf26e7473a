// A set of holders for each node: bits, side by side.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <vector>

namespace radixkv {

class HolderSets {
  public:
    using Word = uint64_t;

    // Room for that many sets and holders; what is there stays.
    void reserve(size_t sets, size_t holders) {
        size_t width = std::max(width_, (holders + 63) / 64);
        if (width == width_ && sets * width <= words_.size()) return;
        size_t room = std::max(sets, words_.size() / width_ * 2);
        std::vector<Word> wider(room * width);
        for (size_t set = 0; set < words_.size() / width_; ++set) {
            std::copy_n(&words_[set * width_], width_, &wider[set * width]);
        }
        words_.swap(wider);
        width_ = width;
    }

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
    Word* at(size_t set) {
        assert((set + 1) * width_ <= words_.size());
        return &words_[set * width_];
    }

    std::vector<Word> words_;
    size_t width_ = 1;
};

// Calls use(holder) for each bit of a word that begins with holder `first`.
template <class Use>
void each_holder(HolderSets::Word word, uint32_t first, const Use& use) {
    for (; word; word &= word - 1) use(first + static_cast<uint32_t>(std::countr_zero(word)));
}

}  // namespace radixkv
