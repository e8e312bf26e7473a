// `Changes` of radixkv/tree/radix_tree.py: what a tree recorded, made into Python's objects when it
// is read.
#pragma once

#include <algorithm>
#include <vector>

#include "python.hpp"

namespace radixkv {

struct Change {
    uint64_t run;
    uint32_t keep;  // of a Trimmed
    uint64_t parent_run;
    uint32_t parent_offset;
    nb::object codes;  // of a Stored; nothing: a Trimmed
    nb::object space;
};

class Changes {
  public:
    // Makes sure that the next `count` calls of `add` cannot fail.
    void reserve(size_t count) {
        if (size_t most = changes_.size() + count; most > changes_.capacity())
            changes_.reserve(std::max(most, 2 * changes_.size()));
    }

    void add(Change change) noexcept { changes_.push_back(std::move(change)); }

    // Gives back what was reserved and not needed.
    void shrink() noexcept { changes_.shrink_to_fit(); }

    size_t size() const { return changes_.size(); }
    uint64_t num_bytes() const;
    nb::list made() const;  // Stored and Trimmed

  private:
    std::vector<Change> changes_;
};

void bind_changes(nb::module_& module);

}  // namespace radixkv
