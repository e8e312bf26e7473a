// The contract of radixkv/tree/radix_tree.py over `Tree`: arguments, namespaces, content, changes,
// errors.
#pragma once

#include <atomic>
#include <memory>

#include "changes.hpp"
#include "handle.hpp"
#include "input.hpp"
#include "ledger_binding.hpp"
#include "spaces.hpp"
#include "tickets_binding.hpp"
#include "tree/tree_check.hpp"

namespace radixkv {

struct NodeInEpoch {
    uint64_t epoch;
    NodeId id;
    uint32_t generation;
};

class TreeBinding {
  public:
    TreeBinding(nb::handle page_size, nb::handle policy);

    nb::object match_prefix(nb::handle ids, nb::handle space, nb::handle content, bool checked);
    nb::object match_handle(nb::handle ids, nb::handle space, nb::handle content);
    nb::object path_slots(nb::handle handle);
    nb::object path_slices(nb::handle handle, nb::handle most);
    uint32_t probe(nb::handle ids, nb::handle space, nb::handle content);
    nb::list match_batch(nb::handle prompts, nb::handle space, bool checked);
    nb::list match_lengths(nb::handle prompts, nb::handle space, bool checked);
    nb::list probe_batch(nb::handle prompts, nb::handle space);
    void inc_lock_ref(nb::handle handle);
    void dec_lock_ref(nb::handle handle);
    nb::object insert(nb::handle ids, nb::handle slots, nb::handle space, nb::handle content,
                      nb::handle priority, bool chunked, nb::handle after, bool checked);
    nb::object insert_from(nb::handle ids, nb::handle tickets, nb::handle space,
                           nb::handle priority, bool chunked, nb::handle after);
    nb::object evict(nb::handle num_tokens);
    nb::object evict_to(nb::handle tickets, nb::handle num_tokens, nb::handle most);
    nb::object reset();

    // ---- a request's admission and publication: see `RadixTree` ----

    nb::object admit(nb::handle ids, LedgerBinding& ledger, nb::handle row, nb::handle space,
                     nb::handle content, nb::handle max_cached, nb::handle extra);
    nb::object publish(nb::handle ids, LedgerBinding& ledger, nb::handle row, nb::handle space,
                       nb::handle content, nb::handle priority, bool chunked, nb::handle held,
                       nb::handle fence);

    uint32_t page_size() const { return tree_.page_size; }
    nb::object policy() const { return policy_; }
    uint64_t epoch() const { return epoch_; }
    uint64_t evictable_size() const { return tree_.evictable_size(); }
    uint64_t protected_size() const { return tree_.protected_size(); }
    uint64_t total_size() const { return tree_.evictable_size() + tree_.protected_size(); }
    uint64_t num_nodes() const { return tree_.num_nodes(); }

    void track_changes() { tracks_ = true; }
    nb::object take_changes();
    nb::object all_slots() const;
    nb::tuple sizes_of(nb::handle space);
    nb::list check_integrity() const;

    // ---- walking: numbers first, so that a tree that changes meanwhile is noticed ----

    std::vector<NodeInEpoch> walk() const;
    nb::object info(const NodeInEpoch& node) const;

    // ---- pickling ----

    nb::tuple counters() const;
    void restore(nb::handle nodes, nb::tuple counters);
    void restore_history(nb::bytes history, const std::vector<NodeId>& nodes);

  private:
    // The beginning of a key that a locked handle stands for: it is not looked at again.
    struct Known {
        NodeId node = NONE;
        uint32_t length = 0;
    };

    struct Insert {
        size_t count;  // of slots, for what is behind the known tokens
        int64_t priority;
        bool is_hit;
        Known known;
    };

    struct Inserted {
        uint32_t prefix;  // tokens that were there
        NodeId leaf;      // NONE: all of them were
        Place place;      // the whole key
    };

    template <class Find>
    NodeId settle(const Find& find) const;
    template <class Key>
    bool is_suspect(const Key& key, uint32_t from) const;
    template <class Key>
    std::optional<uint32_t> probe_key(NodeId root, const Key& key) const;
    template <class Key, class CopyFound>
    std::optional<Place> match_key(NodeId root, const Key& key, const CopyFound& copy_found);
    template <class CopyFound>
    Place match(nb::handle ids, nb::handle space, nb::handle content, bool checked,
                const CopyFound& copy_found);
    template <class Key, class NewSlots, class CopyFound>
    std::optional<Inserted> insert_key(NodeId root, Key key, const Insert& how,
                                       const NewSlots& new_slots, const CopyFound& copy_found);
    nb::object found_slots(const Path& path, const Descent& found, uint32_t from) const;
    template <class Use>
    auto insert_codes(nb::handle ids, const nb::object& codes, bool checked, nb::handle space,
                      const Use& use);

    void record_stored(NodeId leaf, nb::handle space, bool has_content);
    uint64_t count_evictable(nb::handle num_tokens);
    void evict_slots(uint64_t count, int32_t* out);
    void record_trimmed(const Trim& trim, std::vector<int32_t>& released);
    void release_content(const std::vector<int32_t>& codes);
    bool take(uint64_t count, LedgerBinding& ledger, int32_t* out);
    Place touch(const Descent& found, const Path& path);
    nb::object match_result(nb::object slots, const Place& place) const;
    nb::object encode(nb::handle ids, nb::handle content, bool intern, bool checked = false) const;
    std::vector<Lock> locks() const;
    uint32_t check_known(nb::handle after, nb::handle space);
    Known known_by(nb::handle after, size_t size) const;
    nb::object new_handle(const Place& place) const;
    Handle& resolve(nb::handle object, NodeId& node) const;
    void wait_for_readers() const;

    nb::object policy_;
    Tree tree_;
    Path path_;  // of the last descent; kept, so that none is allocated
    Spaces spaces_;
    LockedHandles locked_;
    nb::object content_;
    uint64_t content_codes_ = 0;  // negative codes in the tree
    bool tracks_ = false;
    std::vector<Change> changes_;
    uint64_t number_;
    uint64_t epoch_ = 1;
    std::atomic<int> readers_{0};  // that hold no GIL
};

// Where find() put the root, with no batch being read without the GIL: from here to the change no
// Python runs.
template <class Find>
NodeId TreeBinding::settle(const Find& find) const {
    NodeId root = find();
    while (readers_.load()) {
        wait_for_readers();
        root = find();
    }
    return root;
}

}  // namespace radixkv
