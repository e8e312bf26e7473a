// Reads bytes as operations on a tree, with shares or without, and its allocator, of which any
// allocation may fail, and checks after each of them every invariant of the tree, and its answers
// against an obvious model: where memory ran out, nothing has changed. For libFuzzer: `make fuzz`.
#include <array>
#include <optional>

#include "failing.hpp"
#include "model.hpp"
#include "tree/allocator.hpp"
#include "tree/policies/table.hpp"
#include "tree/tree_check.hpp"

#ifdef NDEBUG
#error "the fuzzer is built without assertions"
#endif

namespace radixkv::fuzz {

namespace {

constexpr size_t SPACES = 3, HANDLES = 8, MOST_STEPS = 300;
constexpr uint32_t PAGES = 48;

// What the fuzzer wrote; zeros after its end.
class Bytes {
  public:
    Bytes(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}
    bool empty() const { return at_ == end_; }
    uint8_t next() { return empty() ? 0 : *at_++; }
    uint32_t below(uint32_t bound) { return next() % bound; }

  private:
    const uint8_t* at_;
    const uint8_t* end_;
};

struct FuzzHandle {
    size_t space = 0;
    Tokens prefix;
    uint64_t birth = 0;
    Place place;
    uint64_t locks = 0;
};

class Fuzz {
  public:
    explicit Fuzz(Bytes bytes)
        : bytes_(bytes),
          kind_(bytes_.next()),
          page_(1 + kind_ % 4),
          shares_(kind_ / 4 % 2 ? draw_shares() : Shares()),
          policy_(draw_policy()),
          tree_(page_, policy_, bytes_.next() * 0x9e3779b97f4a7c15, shares_),
          pool_(std::in_place, PAGES * page_, page_) {}

    void run() {
        for (size_t step = 0; step < MOST_STEPS && !bytes_.empty(); ++step) {
            operate();
            check();
        }
        while (FuzzHandle* handle = any_locked()) unlock(*handle);
        check();
        compare_with_copy();
    }

  private:
    // Of each namespace its own. The reserves together fit the pool.
    Shares draw_shares() {
        std::vector<Share> all(SPACES);
        for (Share& share : all) {
            share.reserve = bytes_.below(PAGES / SPACES) * page_;
            if (bytes_.below(2)) share.cap = share.reserve + bytes_.below(PAGES) * page_;
        }
        return Shares(std::move(all));
    }

    NewPolicy draw_policy() {
        const NamedPolicy& named = POLICIES[bytes_.below(uint32_t{POLICIES.size()})];
        return shares_.is_set() ? named.make_by_share : named.make;
    }

    ShareId share_of(size_t space) const { return shares_.is_set() ? space : 0; }

    // A caller that evicts: of a namespace, or of none.
    ShareId draw_share() {
        uint32_t drawn = shares_.is_set() ? bytes_.below(SPACES + 1) : SPACES;
        return drawn == SPACES ? NO_SHARE : static_cast<ShareId>(drawn);
    }

    void operate() {
        switch (bytes_.below(16)) {
            case 0:
            case 1:
            case 2:
                return insert_good();
            case 3:
                return insert_bad();
            case 4:
            case 5:
                return match();
            case 6:
            case 7:
                return lock(handles_[bytes_.below(HANDLES)]);
            case 8:
                return unlock(handles_[bytes_.below(HANDLES)]);
            case 9:
                return evict(bytes_.below(8) * page_, draw_share());
            case 10:
                if (shares_.is_set() && bytes_.below(2)) return evict_beyond_caps();
                return evict(bytes_.next(), draw_share());
            case 11:
                if (bytes_.next() == 0) clear();
                return;
            case 12:
                return insert_after(handles_[bytes_.below(HANDLES)]);
            case 13:
                return probe();
            case 14:
                return free_bad();
            case 15:
                fails_after_ = bytes_.below(12);
        }
    }

    // Whether memory sufficed for change(), which changes nothing otherwise.
    template <class Change>
    bool attempt(const Change& change) {
        MayFail may(std::exchange(fails_after_, std::nullopt));
        try {
            change();
            return true;
        } catch (const std::bad_alloc&) {
            return false;
        }
    }

    // The beginning of the last key, then tokens of a small alphabet: keys that share much.
    const Tokens& next_key() {
        key_.resize(std::min<size_t>(key_.size(), bytes_.below(32)));
        for (uint32_t more = bytes_.below(16); more > 0; --more) key_.push_back(bytes_.below(3));
        return key_;
    }

    // ---- looking ----

    void match() {
        size_t space = bytes_.below(SPACES);
        const Tokens& key = next_key();
        Descent found =
            tree_.descend(roots_[space], Int32Key{key.data(), size_of(key), true}, path_);
        uint32_t length = models_[space].match(key);
        expect(found.length == length, "a match has another length");
        expect_slots(space, found);
        NodeId last = found.partial;
        if (last == NONE && !path_.empty()) last = path_.back();
        if (bytes_.below(2)) tree_.touch(path_);
        FuzzHandle& handle = handles_[bytes_.below(HANDLES)];
        while (handle.locks) unlock(handle);
        handle = {space, first(key, length), 0, tree_.place(last, length), 0};
        if (length) handle.birth = models_[space].find(handle.prefix)->birth;
    }

    // Changes nothing, and visits nodes that together are what was matched.
    void probe() {
        size_t space = bytes_.below(SPACES);
        const Tokens& key = next_key();
        std::vector<int64_t> ids(key.begin(), key.end());
        uint32_t visited = 0;
        const Tree& tree = tree_;
        Descent found = tree.descend(roots_[space], Int64Key{ids.data(), size_of(key)},
                                     [&](NodeId id) { visited += tree.node(id).length; });
        expect(found.length == models_[space].match(key), "a probe finds another length");
        expect(found.partial != NONE ? visited <= found.length : visited == found.length,
               "a probe visits other nodes");
    }

    void expect_slots(size_t space, const Descent& found) {
        uint32_t from = found.length ? bytes_.below(found.length) : 0;
        Tokens slots(found.length - from);
        tree_.copy_slots(path_, found.partial, from, found.length, slots.data());
        for (uint32_t i = from; i < found.length; ++i) {
            const Page* page = models_[space].find(first(key_, i - i % page_ + page_));
            expect(page->slots[i % page_] == slots[i - from], "a match has other slots");
        }
    }

    // ---- locks ----

    bool is_there(const FuzzHandle& handle) const {
        if (handle.prefix.empty()) return true;
        const Page* page = models_[handle.space].find(handle.prefix);
        return page && page->birth == handle.birth;
    }

    void lock(FuzzHandle& handle) {
        NodeId node;
        if (!tree_.resolve(handle.place, node)) return;
        if (!attempt([&] { tree_.lock(tree_.split_for_lock(node, handle.place)); })) return;
        models_[handle.space].add_locks(handle.prefix, 1);
        ++handle.locks;
    }

    void unlock(FuzzHandle& handle) {
        if (!handle.locks) return;
        NodeId node;
        expect(tree_.resolve(handle.place, node), "the tokens of a locked handle are gone");
        tree_.unlock(node);
        models_[handle.space].add_locks(handle.prefix, -1);
        --handle.locks;
    }

    FuzzHandle* any_locked() {
        for (FuzzHandle& handle : handles_) {
            if (handle.locks) return &handle;
        }
        return nullptr;
    }

    // ---- changing ----

    void insert_good() {
        size_t space = bytes_.below(SPACES);
        Tokens key = next_key();
        key.resize(key.size() - key.size() % page_);
        uint32_t pages = size_of(key) / page_;
        if (pages > pool_->free_pages())
            evict((pages - pool_->free_pages()) * page_, share_of(space), pages * page_);
        if (pages > pool_->free_pages()) return;
        Tokens slots(key.size());
        if (!attempt([&] { pool_->allocate(pages, slots.data()); })) return;
        uint32_t known = models_[space].match(key);
        uint32_t there = bytes_.below(2) ? insert(space, Int32Key{key.data(), pages * page_}, slots)
                                         : insert_wide(space, key, slots);
        if (there == NO_MEMORY)
            return expect(pool_->free(slots.data(), slots.size()), "the pool refuses its slots");
        expect(there == known, "an insert found another length");
        models_[space].insert(key, slots.data());
        expect(pool_->free(slots.data(), there), "the pool refuses the duplicates");
    }

    // What is locked is not looked at again: its ids may even be wrong.
    void insert_after(FuzzHandle& handle) {
        NodeId node;
        if (!handle.locks || handle.prefix.empty()) return;
        expect(tree_.resolve(handle.place, node), "the tokens of a locked handle are gone");
        Tokens key = handle.prefix;
        for (uint32_t more = bytes_.below(4) * page_; more > 0; --more)
            key.push_back(bytes_.below(3));
        uint32_t known = size_of(handle.prefix), pages = (size_of(key) - known) / page_;
        if (pages > pool_->free_pages()) return;
        Tokens slots(key.size());
        if (!attempt([&] { pool_->allocate(pages, slots.data() + known); })) return;
        Tokens unread = key;
        std::fill_n(unread.begin(), known, -7);
        Int32Key rest{unread.data(), size_of(key)};
        uint32_t there = insert(handle.space, rest, slots, node);
        if (there == NO_MEMORY) {
            expect(pool_->free(slots.data() + known, slots.size() - known), "refuses its slots");
            return;
        }
        expect(there == models_[handle.space].match(key), "an insert after finds another length");
        models_[handle.space].insert(key, slots.data());
        expect(pool_->free(slots.data() + known, there - known), "the pool refuses the duplicates");
    }

    // A page that is free already, or comes twice, or in part: refused, and nothing is freed.
    void free_bad() {
        uint32_t before = pool_->free_pages(), page = 1 + bytes_.below(PAGES);
        Tokens slots;
        for (uint32_t j = 0; j < page_; ++j) slots.push_back(page * page_ + j);
        if (pool_->is_held(page)) {
            if (bytes_.below(2) || page_ == 1) {
                slots.insert(slots.end(), slots.begin(), slots.begin() + page_);
            } else {
                slots.pop_back();
            }
        }
        expect(!pool_->free(slots.data(), slots.size()), "a bad free was taken");
        expect(pool_->free_pages() == before, "a refused free changed something");
    }

    // An invalid id must change nothing.
    void insert_bad() {
        size_t space = bytes_.below(SPACES);
        next_key();
        std::vector<int64_t> ids(key_.begin(), key_.end());
        uint32_t known = models_[space].match(key_);
        if (known == ids.size()) return;
        ids[known + bytes_.below(static_cast<uint32_t>(ids.size()) - known)] =
            bytes_.below(2) ? -1 : int64_t{INT32_MAX} + 1 + bytes_.next();
        Tokens slots(ids.size());
        uint32_t there = insert(space, Int64Key{ids.data(), size_of(key_)}, slots);
        expect(there == REFUSED || there == NO_MEMORY, "an invalid id was stored");
    }

    uint32_t insert_wide(size_t space, const Tokens& key, const Tokens& slots) {
        std::vector<int64_t> ids(key.begin(), key.end());
        return insert(space, Int64Key{ids.data(), size_of(key)}, slots);
    }

    // Tokens that were there, REFUSED or NO_MEMORY.
    template <class Key>
    uint32_t insert(size_t space, Key key, const Tokens& slots, NodeId from = NONE) {
        Descent found = tree_.descend(from == NONE ? roots_[space] : from, key, path_);
        uint32_t count = key.size - found.length;
        bool is_good = false;
        std::optional<Growth> growth;
        auto prepare = [&] {
            TokenRun run(slots.data() + found.length, count);
            is_good = key.copy(found.length, count, run.tokens());
            if (is_good) growth = tree_.prepare(path_, found, std::move(run));
        };
        if (!attempt(prepare)) return NO_MEMORY;
        if (!is_good) return REFUSED;
        if (!key.size) return 0;
        if (roots_[space] == NONE && !attempt([&] { add_root(space, *growth); })) return NO_MEMORY;
        int64_t priority = bytes_.below(4);
        tree_.extend(path_, *std::move(growth), roots_[space], priority, bytes_.below(2));
        return found.length;
    }

    // After it, there is no more room for the growth.
    void add_root(size_t space, Growth& growth) {
        NodeId root = tree_.add_root(0, share_of(space));
        try {
            growth = tree_.prepare(path_, growth.found, std::move(growth.leaf));
        } catch (const std::bad_alloc&) {
            tree_.remove_root(root);
            throw;
        }
        roots_[space] = root;
    }

    // For a caller that is going to cache `wanted` tokens.
    void evict(uint64_t count, ShareId whom, uint64_t wanted = 0) {
        count = std::min((count + page_ - 1) / page_ * page_, tree_.room_for(whom));
        evict(count, tree_.shares().claim(whom, wanted, count));
    }

    void evict_beyond_caps() {
        for (ShareId id = 0; id < shares_.size(); ++id) {
            uint64_t own = tree_.shares()[id].beyond_cap(0);
            evict(own, Claim{id, own});
            expect(tree_.shares()[id].beyond_cap(0) == 0, "more is kept than the cap");
        }
    }

    void evict(uint64_t count, Claim claim) {
        Tokens slots(count);
        uint64_t trimmed = 0;
        const Shares before = tree_.shares();
        bool is_done = attempt([&] {
            tree_.evict(
                count, slots.data(),
                [&](const Trim& trim) { trimmed += trim.node.length - trim.keep; },
                [&](NodeId root) { drop_root(root); }, claim);
        });
        expect(is_done, "an eviction found no memory");
        expect(trimmed == count, "evict names other tokens than it frees");
        for (uint64_t at = 0; at < count; at += page_) forget(&slots[at]);
        for (const Model& model : models_) model.expect_no_gap();
        expect(pool_->free(slots.data(), slots.size()), "the pool refuses evicted slots");
        expect_claimed(before, claim);
    }

    // Its own tokens go first as far as it claims; of others what is reserved stays.
    void expect_claimed(const Shares& before, const Claim& claim) const {
        for (ShareId id = 0; shares_.is_set() && id < before.size(); ++id) {
            uint64_t gone = before[id].size() - tree_.shares()[id].size();
            if (id == claim.share) expect(gone >= claim.own, "others' tokens go before its own");
            if (id != claim.share)
                expect(gone <= before[id].spare(), "reserved tokens are evicted");
        }
    }

    void forget(const int32_t* slots) {
        for (Model& model : models_) {
            if (model.evict(slots)) return;
        }
        expect(false, "slots were evicted that are not a cached page");
    }

    void drop_root(NodeId root) {
        for (NodeId& own : roots_) {
            if (own == root) own = NONE;
        }
        tree_.remove_root(root);
    }

    void clear() {
        tree_.clear();
        pool_.emplace(PAGES * page_, page_);
        roots_ = {};
        handles_ = {};
        for (Model& model : models_) model.clear();
    }

    // ---- checking ----

    void check() {
        std::vector<Lock> locks;
        for (const FuzzHandle& handle : handles_) {
            NodeId node;
            expect(tree_.resolve(handle.place, node) == is_there(handle),
                   "a handle resolves to tokens that are gone, or not to those that are there");
            if (handle.locks) locks.push_back({handle.place, handle.locks});
        }
        expect_none(check_tree(tree_, roots(), locks, num_slots()));
        check_on(locks);
        check_sizes();
    }

    static void expect_none(const std::vector<std::string>& lines) {
        for (const std::string& line : lines) {
            std::fprintf(stderr, "%s\n", line.c_str());
            expect(false, "an invariant");
        }
    }

    // A check that goes on from step to step reports nothing either, whatever they changed.
    void check_on(const std::vector<Lock>& locks) {
        if (!slow_check_ || slow_check_->is_void() || slow_check_->has_seen_all()) {
            auto is_root = [&](NodeId id) {
                return id != NONE && std::find(roots_.begin(), roots_.end(), id) != roots_.end();
            };
            slow_check_.reset();
            slow_check_.emplace(tree_, is_root, num_slots());
        }
        expect_none(slow_check_->look(2));
        if (slow_check_->has_seen_all()) expect_none(slow_check_->compare_sums(locks));
    }

    size_t num_slots() const { return size_t{PAGES + 1} * page_; }

    void check_sizes() const {
        uint64_t all = 0, locked = 0;
        for (size_t space = 0; space < SPACES; ++space) {
            if (shares_.is_set())
                expect(tree_.shares()[share_of(space)].size() == models_[space].size(),
                       "a share counts other tokens than are cached of it");
            expect((models_[space].size() == 0) == (roots_[space] == NONE),
                   "a namespace has a root exactly while something is cached in it");
            all += models_[space].size();
            locked += models_[space].locked();
        }
        expect(tree_.protected_size() == locked, "protected tokens");
        expect(tree_.evictable_size() == all - locked, "evictable tokens");
        expect(pool_->free_pages() * page_ + all == PAGES * page_, "slots were lost");
    }

    std::vector<NodeId> roots() const {
        std::vector<NodeId> there;
        for (NodeId root : roots_) {
            if (root != NONE) there.push_back(root);
        }
        return there;
    }

    // A copy made node by node is sound and evicts in the same order.
    void compare_with_copy() {
        Tree copy(page_, policy_, 7, shares_);
        std::vector<NodeId> copied, all, all_copied;
        for (NodeId root : roots()) copied.push_back(copy_space(root, copy));
        for (NodeId root : roots()) tree_.walk(root, all);
        for (NodeId root : copied) copy.walk(root, all_copied);
        copy.policy().load(tree_.policy().save(all), all_copied);
        copy.restore_order(tree_.ticks(), tree_.runs());
        expect_none(check_tree(copy, copied, {}, num_slots()));
        expect(copy.evictable_size() == tree_.evictable_size(), "the copy has another size");
        compare_evictions(copy, NO_SHARE);
        for (ShareId id = 0; shares_.is_set() && id < shares_.size(); ++id)
            compare_evictions(copy, id);
        expect(tree_.evictable_size() == 0, "what may be evicted for all shares is not all");
    }

    void compare_evictions(Tree& copy, ShareId whom) {
        while (tree_.room_for(whom)) {
            Tokens own(page_), other(page_);
            Claim claim{whom, 0};
            tree_.evict(page_, own.data(), [](const Trim&) {}, [](NodeId) {}, claim);
            copy.evict(page_, other.data(), [](const Trim&) {}, [](NodeId) {}, claim);
            expect(own == other, "the copy evicts in another order");
        }
    }

    NodeId copy_space(NodeId root, Tree& copy) const {
        std::map<NodeId, NodeId> by_id{{root, copy.add_root(0, tree_.node(root).share)}};
        std::vector<NodeId> all;
        tree_.walk(root, all);
        for (NodeId id : all) {
            const Node& node = tree_.node(id);
            by_id[id] = copy.restore(by_id.at(node.parent), node, node.cut(0, node.length));
        }
        return by_id[root];
    }

    static uint32_t size_of(const Tokens& tokens) { return static_cast<uint32_t>(tokens.size()); }

    static constexpr uint32_t REFUSED = ~0u, NO_MEMORY = ~0u - 1;

    Bytes bytes_;
    const uint32_t kind_;
    const uint32_t page_;
    const Shares shares_;  // as they are at the start
    const NewPolicy policy_;
    Tree tree_;
    Path path_;
    std::optional<SlotAllocator> pool_;  // always there; replaced by `clear`
    std::array<NodeId, SPACES> roots_{};
    std::array<Model, SPACES> models_{Model(page_), Model(page_), Model(page_)};
    std::array<FuzzHandle, HANDLES> handles_;
    Tokens key_;
    std::optional<TreeCheck> slow_check_;
    std::optional<unsigned> fails_after_;  // allocations of the next change
};

}  // namespace

}  // namespace radixkv::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    radixkv::fuzz::Fuzz(radixkv::fuzz::Bytes(data, size)).run();
    return 0;
}
