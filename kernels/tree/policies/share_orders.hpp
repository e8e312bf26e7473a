// One policy, with an order of eviction for each share.
#pragma once

#include <memory>
#include <vector>

#include "../shares.hpp"
#include "policy.hpp"

namespace radixkv {

// A policy for the leaves of each share. What a policy learns is one for all: the first has it.
//
// Between shares that may give, the victim with the smallest rank goes: O(shares) a victim.
class ShareOrders final : public Policy {
  public:
    ShareOrders(Arena& nodes, const Shares& shares, const SpaceSizes& spaces, NewPolicy make,
                uint32_t page_size, uint64_t seed)
        : Policy(nodes), shares_(shares), spaces_(spaces) {
        for (size_t i = 0; i < shares.size(); ++i) {
            orders_.push_back(make(nodes, page_size, seed, i ? orders_[0].get() : nullptr));
            assert(!orders_[i]->holds_inner_nodes);
        }
    }

    // What to evict for `claim`, and how many of its tokens at most; NONE: nothing may be.
    NodeId victim(const Claim& claim, uint64_t& most) {
        if (claim.own > 0) {
            most = claim.own;
            return orders_[claim.share]->victim();
        }
        NodeId first = NONE;
        Rank least;
        for (ShareId id = 0; id < orders_.size(); ++id) {
            const Share& share = shares_[id];
            uint64_t count = id == claim.share ? share.evictable : share.spare();
            if (!count) continue;
            NodeId candidate = orders_[id]->victim();
            Rank its = orders_[id]->rank(candidate);
            if (first != NONE && !(its < least)) continue;
            first = candidate;
            least = its;
            most = count;
        }
        return first;
    }

    NodeId victim() override {
        uint64_t most;
        return victim(Claim{}, most);
    }
    Rank rank(NodeId id) const override { return order_of(id).rank(id); }

    // ---- of one node ----

    void touch(NodeId id) override { order_of(id).touch(id); }
    void resized(NodeId id) override { order_of(id).resized(id); }
    void use(const std::vector<NodeId>& path) override {
        (path.empty() ? *orders_[0] : order_of(path[0])).use(path);
    }
    void add_root(NodeId root, PrefixHash hash) override { orders_[0]->add_root(root, hash); }
    void add_leaf(NodeId leaf, bool chunked) override { order_of(leaf).add_leaf(leaf, chunked); }
    void split(NodeId head, NodeId tail) override { order_of(tail).split(head, tail); }
    void trim(NodeId id, uint32_t keep) override { order_of(id).trim(id, keep); }
    bool is_sound(NodeId id) const override { return order_of(id).is_sound(id); }

    // ---- of all ----

    void reserve(NodeId bound, size_t more) override {
        for (auto& order : orders_) order->reserve(bound, more);
    }
    void reserve_places(size_t more) override {
        for (auto& order : orders_) order->reserve_places(more);
    }
    void clear() noexcept override {
        for (auto& order : orders_) order->clear();
    }
    bool reads_prefixes() const override { return orders_[0]->reads_prefixes(); }
    void advance_clock(uint64_t now) override { orders_[0]->advance_clock(now); }
    void begin_eviction(uint64_t size, uint64_t count) override {
        orders_[0]->begin_eviction(size, count);
    }
    void end_eviction(uint64_t size) override { orders_[0]->end_eviction(size); }
    std::vector<uint64_t> save(const std::vector<NodeId>& nodes) const override {
        return orders_[0]->save(nodes);
    }
    void load(const std::vector<uint64_t>& state, const std::vector<NodeId>& nodes) override {
        orders_[0]->load(state, nodes);
    }
    void check_node(NodeId id, std::vector<std::string>& lines) const override {
        orders_[0]->check_node(id, lines);
    }
    void check_sums(uint64_t size, std::vector<std::string>& lines) const override {
        orders_[0]->check_sums(size, lines);
    }

  private:
    Policy& order_of(NodeId id) const { return *orders_[spaces_[nodes_[id].space].share]; }
    void add_to_order(NodeId id) override { order_of(id).place(id); }
    void remove_from_order(NodeId id) override { order_of(id).remove(id); }

    const Shares& shares_;
    const SpaceSizes& spaces_;
    std::vector<std::unique_ptr<Policy>> orders_;
};

}  // namespace radixkv
