// Which policies there are.
#pragma once

#include <array>
#include <string_view>

#include "adaptive.hpp"
#include "hits_per_token.hpp"
#include "key_policies.hpp"
#include "lru.hpp"

namespace radixkv {

// make_by_share: for a tree with an order of eviction for each share.
struct NamedPolicy {
    std::string_view name;
    NewPolicy make;
    NewPolicy make_by_share = make;
};

template <class Its>
std::unique_ptr<Policy> new_policy(Arena& nodes, uint32_t page_size, uint64_t seed, Policy* first) {
    if constexpr (std::is_constructible_v<Its, Arena&, Its&>) {
        if (first) return std::make_unique<Its>(nodes, static_cast<Its&>(*first));
    }
    return std::make_unique<Its>(nodes, page_size, seed);
}

// The names of `radixkv/tree/policies/__init__.py`.
inline constexpr auto POLICIES = std::to_array<NamedPolicy>({
    {"lru", new_policy<Lru>, new_policy<LruLeaves>},
    {"lfu", new_policy<Lfu>},
    {"fifo", new_policy<Fifo>},
    {"mru", new_policy<Mru>},
    {"filo", new_policy<Filo>},
    {"slru", new_policy<Slru>},
    {"priority", new_policy<Priority>},
    {"adaptive", new_policy<Adaptive>},
    {"hits_per_token", new_policy<HitsPerToken>},
});

// nullptr if no policy has that name.
constexpr const NamedPolicy* find_policy(std::string_view name) {
    for (const NamedPolicy& policy : POLICIES) {
        if (policy.name == name) return &policy;
    }
    return nullptr;
}

}  // namespace radixkv
