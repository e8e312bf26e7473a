// What a policy saved, number by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace radixkv {

// std::out_of_range where that was never saved.
class SavedState {
  public:
    explicit SavedState(const std::vector<uint64_t>& numbers) : numbers_(numbers) {}

    bool is_read() const { return at_ == numbers_.size(); }
    uint64_t next() { return numbers_.at(at_++); }
    uint64_t next(uint64_t below) {
        if (uint64_t number = next(); number < below) return number;
        throw std::out_of_range("a saved number is too large");
    }

  private:
    const std::vector<uint64_t>& numbers_;
    size_t at_ = 0;
};

}  // namespace radixkv
