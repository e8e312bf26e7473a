// Which policies there are.
#pragma once

#include <array>
#include <string_view>

#include "adaptive.hpp"
#include "hits_per_token.hpp"
#include "key_policies.hpp"
#include "lru.hpp"

namespace radixkv {

struct NamedPolicy {
    std::string_view name;
    NewPolicy make;
};

template <class Its>
std::unique_ptr<Policy> new_policy(Arena& nodes, uint32_t page_size, uint64_t seed) {
    return std::make_unique<Its>(nodes, page_size, seed);
}

// The names of `radixkv/tree/policies/__init__.py`.
inline constexpr auto POLICIES = std::to_array<NamedPolicy>({
    {"lru", new_policy<Lru>},
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
constexpr NewPolicy find_policy(std::string_view name) {
    for (const NamedPolicy& policy : POLICIES) {
        if (policy.name == name) return policy.make;
    }
    return nullptr;
}

}  // namespace radixkv
