// The contract of radixkv/tree/radix_tree.py over `Tree`: arguments, namespaces, content, changes,
// errors.
#pragma once

#include <atomic>
#include <memory>

#include "changes.hpp"
#include "flag.hpp"
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

// A node as it was when a table of all nodes was made.
struct NodeFacts {
    uint64_t id, parent_id, recency;
    Place end;
    uint32_t start, lock_ref;
    NodeId root;
};

class TreeBinding {
  public:
    TreeBinding(nb::handle page_size, nb::handle policy, nb::handle shares);

    nb::object match_prefix(nb::handle ids, nb::handle space, nb::handle content, Checked checked);
    nb::object match_handle(nb::handle ids, nb::handle space, nb::handle content);
    nb::object path_slots(nb::handle handle);
    nb::object path_slices(nb::handle handle, nb::handle most);
    uint32_t probe(nb::handle ids, nb::handle space, nb::handle content, Checked checked);
    nb::list match_batch(nb::handle prompts, nb::handle space, Checked checked);
    nb::list match_lengths(nb::handle prompts, nb::handle space, Checked checked);
    nb::list probe_batch(nb::handle prompts, nb::handle space, Checked checked);
    void inc_lock_ref(nb::handle handle);
    void dec_lock_ref(nb::handle handle);
    nb::object path_of(nb::handle handle);
    nb::object insert(nb::handle ids, nb::handle slots, nb::handle space, nb::handle content,
                      nb::handle priority, Chunked chunked, nb::handle after, Checked checked);
    nb::object evict(nb::handle num_tokens, nb::handle space, nb::handle wanted);
    nb::object evict_below(nb::handle ids, nb::handle space, nb::handle content);
    uint64_t evict_below_into(nb::handle ids, LedgerBinding& ledger, nb::handle space,
                              nb::handle content);
    nb::object evict_beyond_caps();
    void advance_clock(nb::handle milliseconds);
    uint64_t room_for(nb::handle space) const { return tree_.room_for(spaces_.share_of(space)); }
    nb::dict share_sizes() const;
    nb::object insert_from(nb::handle ids, nb::handle tickets, nb::handle space,
                           nb::handle priority, Chunked chunked, nb::handle after);
    nb::object evict_to(nb::handle tickets, nb::handle num_tokens, nb::handle most);
    uint64_t evict_into(nb::handle num_tokens, LedgerBinding& ledger, nb::handle fence);
    uint64_t evict_beyond_caps_into(LedgerBinding& ledger, nb::handle fence);
    nb::object take(nb::handle n, LedgerBinding& ledger, nb::handle space);
    nb::object reset();
    void reset_into(LedgerBinding& ledger, nb::handle readers);

    // ---- a request's admission and publication: see `RadixTree` ----

    nb::object admit(nb::handle ids, LedgerBinding& ledger, nb::handle row, nb::handle space,
                     nb::handle content, nb::handle max_cached, nb::handle extra,
                     nb::handle length);
    nb::object publish(nb::handle ids, LedgerBinding& ledger, nb::handle row, nb::handle space,
                       nb::handle content, nb::handle priority, Chunked chunked, nb::handle held,
                       nb::handle fence, nb::handle length, bool unlock);

    uint32_t page_size() const { return tree_.page_size; }
    nb::object policy() const { return policy_; }
    nb::object shares() const { return shares_; }
    uint64_t epoch() const { return epoch_; }
    uint64_t evictable_size() const { return tree_.evictable_size(); }
    uint64_t protected_size() const { return tree_.protected_size(); }
    uint64_t total_size() const { return tree_.evictable_size() + tree_.protected_size(); }
    uint64_t num_nodes() const { return tree_.num_nodes(); }

    void track_changes() { tracks_ = true; }
    nb::object take_changes();
    nb::object all_slots() const;
    nb::tuple sizes_of(nb::handle space);

    // ---- walking: numbers first, so that a tree that changes meanwhile is noticed ----

    std::vector<NodeInEpoch> walk() const;
    nb::object info(const NodeInEpoch& node) const;

    // Runs by where they ended, as `run_ends` gave them, from `at` on: about `most` tokens of them.
    std::vector<Place> run_ends() const { return tree_.run_ends(); }
    Changes runs(const std::vector<Place>& ends, size_t& at, uint64_t most);

    // All nodes, depth first; the codes of one, as far as they are still there.
    std::vector<NodeFacts> table(std::unordered_map<NodeId, nb::object>& spaces) const;
    nb::object codes_of(const NodeFacts& node);

    // ---- checking: see `TreeCheck` ----

    std::unique_ptr<TreeCheck> begin_check(nb::handle num_slots) const;
    nb::list compare_sums(const TreeCheck& check);

    // How often each locked handle is locked.
    nb::dict locks_of_handles() const;
    nb::object namespace_of(nb::handle handle) const;

    // ---- pickling ----

    nb::tuple counters();
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
        bool has_content;
        Known known;
    };

    // What is retained of the content of a leaf that was added: see `ContentTable`.
    struct Stored {
        uint64_t negative = 0;  // codes below 0
        nb::object codes;       // nothing: no change is recorded and no code is negative
    };

    // What `evict_below` will drop: these nodes, in this order, and then the tokens of `cut`,
    // unless it is NONE, from `keep` on.
    struct Below {
        std::vector<NodeId> nodes;
        NodeId cut = NONE;
        uint32_t keep = 0;
        uint64_t count = 0;  // of tokens
    };

    // What `take` will do, with the memory that takes.
    struct Taking {
        uint64_t count = 0, evicted = 0;
        bool has_room = false;
        Claim claim = {};
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
    template <class Key, class NewSlots, class Prepare>
    std::optional<Stored> insert_key(NodeId root, Key key, const Insert& how, nb::handle space,
                                     Handle& handle, const NewSlots& new_slots,
                                     const Prepare& prepare);
    nb::object found_slots(const Path& path, const Descent& found, uint32_t from) const;
    template <class Prepare, class Use>
    void insert_codes(nb::handle ids, const nb::object& codes, bool checked, nb::handle space,
                      const Prepare& prepare, const Use& use);

    void reserve_changes(size_t count);
    Stored prepare_stored(const TokenRun& run, bool has_content) const;
    void record_stored(NodeId leaf, const Stored& stored, nb::handle space) noexcept;
    uint64_t count_victims(uint64_t wanted, ShareId whom) const;
    void settle(Freeing& freeing) const;
    void prepare_eviction(uint64_t count);
    void evict_slots(uint64_t count, int32_t* out, Claim claim) noexcept;
    template <class Prepare>
    Below find_below(nb::handle ids, nb::handle space, nb::handle content, const Prepare& prepare);
    void evict_slots(const Below& below, int32_t* out) noexcept;
    template <class Evict>
    void record_eviction(const Evict& evict) noexcept;
    void release_content();
    void forget(nb::object& fresh_content) noexcept;
    void record_trimmed(const Trim& trim) noexcept;
    Taking prepare_take(uint64_t count, LedgerBinding& ledger, nb::handle space, Freeing& freeing);
    bool take(const Taking& taking, LedgerBinding& ledger, Freeing& freeing, int32_t* out);
    Place touch(const Descent& found, const Path& path) noexcept;
    nb::object match_result(nb::object slots, const Place& place) const;
    nb::object encode(nb::handle ids, nb::handle content, bool intern, bool checked) const;
    std::vector<Lock> locks() const;
    uint32_t check_known(nb::handle after, nb::handle space);
    Known known_by(nb::handle after, size_t size) const;
    nb::object new_handle(const Place& place) const;
    static Handle& handle_in(const nb::object& object) { return *nb::inst_ptr<Handle>(object); }
    void lock_whole(Handle& handle);
    Handle& resolve(nb::handle object, NodeId& node, const char* name = "handle") const;
    void wait_for_readers() const;

    nb::object policy_;
    Tree tree_;
    nb::object shares_;  // by salt, as they were given
    Path path_;          // of the last descent; kept, so that none is allocated
    Spaces spaces_;
    LockedHandles locked_;
    nb::object content_;
    uint64_t content_codes_ = 0;  // negative codes in the tree
    bool tracks_ = false;
    nb::object changes_;  // `Changes` since they were taken, if there are any
    // Of the eviction that is under way; kept, so that it has room before it begins.
    std::vector<NodeId> empty_roots_;
    nb::object released_;  // codes below 0 that went, up to next_released_, then zeros
    int32_t* next_released_ = nullptr;
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
