// The tree as anyone would write it: every cached page by all tokens up to its end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

namespace radixkv::fuzz {

using Tokens = std::vector<int32_t>;

inline void expect(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

inline Tokens first(const Tokens& tokens, size_t n) {
    return Tokens(tokens.begin(), tokens.begin() + n);
}

struct Page {
    Tokens slots;
    uint64_t birth;  // no other page's, ever
    uint64_t locks = 0;
};

// One namespace. Prefixes are in whole pages.
class Model {
  public:
    explicit Model(uint32_t page_size) : page_(page_size) {}

    // The prefix's last page; nullptr where it is not cached. The empty prefix has no page.
    const Page* find(const Tokens& prefix) const {
        auto found = pages_.find(prefix);
        return found == pages_.end() ? nullptr : &found->second;
    }

    // Tokens cached of `key`.
    uint32_t match(const Tokens& key) const {
        size_t length = 0;
        while (length + page_ <= key.size() && find(first(key, length + page_))) length += page_;
        return static_cast<uint32_t>(length);
    }

    void insert(const Tokens& key, const int32_t* slots) {
        for (size_t end = page_; end <= key.size(); end += page_) {
            Page page{{slots + end - page_, slots + end}, ++births_};
            pages_.try_emplace(first(key, end), page);
        }
    }

    void add_locks(const Tokens& prefix, int step) {
        for (size_t end = page_; end <= prefix.size(); end += page_) {
            pages_.at(first(prefix, end)).locks += step;
        }
    }

    // Whether a page with these slots was here; it must not be locked.
    bool evict(const int32_t* slots) {
        for (auto at = pages_.begin(); at != pages_.end(); ++at) {
            if (!std::equal(slots, slots + page_, at->second.slots.begin())) continue;
            expect(at->second.locks == 0, "a locked page was evicted");
            pages_.erase(at);
            return true;
        }
        return false;
    }

    void expect_no_gap() const {
        for (const auto& [prefix, unused] : pages_) {
            expect(prefix.size() == page_ || find(first(prefix, prefix.size() - page_)),
                   "a page was evicted before what follows it");
        }
    }

    // Tokens.
    uint64_t size() const { return pages_.size() * page_; }

    uint64_t locked() const {
        uint64_t count = 0;
        for (const auto& [unused, page] : pages_) count += page.locks > 0;
        return count * page_;
    }

    void clear() { pages_.clear(); }

  private:
    uint32_t page_;
    std::map<Tokens, Page> pages_;
    uint64_t births_ = 0;
};

}  // namespace radixkv::fuzz
