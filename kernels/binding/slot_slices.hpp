// Slots as Python's slices of those that follow one another.
#pragma once

#include <utility>
#include <vector>

#include "python.hpp"

namespace radixkv {

inline nb::object new_slice(int64_t begin, int64_t end) {
    nb::object slice = nb::steal(PySlice_New(nb::int_(begin).ptr(), nb::int_(end).ptr(), nullptr));
    if (!slice) throw nb::python_error();
    return slice;
}

// At most `most` of them.
class SlotSlices {
  public:
    explicit SlotSlices(size_t most) : most_(most) {}

    // `count` slots from `begin` on; false: with them there are too many slices. For
    // `visit_ranges`.
    bool operator()(int64_t begin, size_t count) {
        auto size = static_cast<int64_t>(count);
        if (!slices_.empty() && slices_.back().second == begin) {
            slices_.back().second += size;
        } else {
            slices_.emplace_back(begin, begin + size);
        }
        return slices_.size() <= most_;
    }

    nb::list made() const {
        nb::list made;
        for (auto [begin, end] : slices_) made.append(new_slice(begin, end));
        return made;
    }

  private:
    size_t most_;
    std::vector<std::pair<int64_t, int64_t>> slices_;
};

}  // namespace radixkv
