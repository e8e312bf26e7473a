#include "tree_binding.hpp"

#include "random_seed.hpp"
#include "slot_slices.hpp"
#include "tree/policies/table.hpp"

namespace radixkv {

using namespace nb::literals;

namespace {

std::atomic<uint64_t> next_number{1};

uint32_t check_page_size(nb::handle page_size) {
    int overflow = 0;
    long long value = 0;
    if (PyLong_CheckExact(page_size.ptr())) {
        value = PyLong_AsLongLongAndOverflow(page_size.ptr(), &overflow);
    }
    if (overflow || value < 1 || value > INT32_MAX) {
        raise(python().InvalidArgumentError,
              "page_size must be an int of at least 1; got " + show(page_size));
    }
    return static_cast<uint32_t>(value);
}

std::string policy_names() {
    std::string names;
    for (const NamedPolicy& policy : POLICIES)
        names += (names.empty() ? "" : ", ") + std::string(policy.name);
    return names;
}

const NamedPolicy& policy_named(nb::handle name) {
    python().get_policy(name);  // raises for one that is not there
    const NamedPolicy* policy = find_policy(nb::cast<std::string>(name));
    if (policy) return *policy;
    raise(python().InvalidArgumentError,
          "policy must be one of " + policy_names() +
              R"(, or core="python" for those of Python alone; got )" + show(name));
}

Shares shares_of(nb::handle whole) {
    std::vector<Share> all{Share{}};
    for (nb::handle each : nb::iter(whole)) {
        nb::object cap = each.attr("cap");
        all.push_back({nb::cast<uint64_t>(each.attr("reserve")),
                       cap.is_none() ? UINT64_MAX : nb::cast<uint64_t>(cap)});
    }
    return Shares(std::move(all));
}

Tree new_tree(nb::handle page_size, nb::handle policy, nb::handle shares) {
    uint32_t page = check_page_size(page_size);
    const NamedPolicy& its = policy_named(policy);
    Shares all = shares_of(python().shares_in_pages(shares, page_size));
    NewPolicy make = all.is_set() ? its.make_by_share : its.make;
    return Tree(page, make, random_seed(), std::move(all));
}

// By salt, as `Spaces` wants them.
nb::dict share_numbers(nb::handle shares) {
    nb::dict numbers;
    uint32_t last = 0;
    for (nb::handle salt : nb::iter(shares)) numbers[salt] = ++last;
    return numbers;
}

PyTypeObject* handle_type() {
    static auto* type = reinterpret_cast<PyTypeObject*>(nb::type<Handle>().ptr());
    return type;
}

[[noreturn]] void raise_no_handle(nb::handle object, const char* name) {
    bool is_other = Py_IS_TYPE(object.ptr(), handle_type());
    raise(python().StaleHandleError, std::string(name) + " must be a Handle of this tree; got " +
                                         (is_other ? "one of another" : show(object)));
}

bool is_given(nb::handle content) {
    if (PyTuple_CheckExact(content.ptr())) return PyTuple_GET_SIZE(content.ptr()) > 0;
    return !PyList_CheckExact(content.ptr()) || PyList_GET_SIZE(content.ptr()) > 0;
}

bool fits_int32(nb::handle ids) {
    auto array = view_int32(ids);
    return array && fits(array.size);
}

// The ids as an int32 array; those that were checked are one already.
nb::object token_array(nb::handle ids, bool checked) {
    return checked && fits_int32(ids) ? nb::borrow(ids) : convert_token_ids(ids, "token_ids");
}

// Calls use(key): the codes, or without them the ids, which are trusted if they were checked.
template <class Prepare, class Use>
auto with_key(nb::handle ids, const nb::object& codes, bool checked, const Prepare& prepare,
              const Use& use) {
    if (!codes && !(checked && fits_int32(ids)))
        return with_token_ids(ids, "token_ids", prepare, use);
    prepare();
    auto array = view_int32(codes ? nb::handle(codes) : ids);
    return *use(Int32Key{array.items, static_cast<uint32_t>(array.size), true});
}

// Slots are checked first, but an error in the ids is the one to report.
Slots check_slots(nb::handle ids, nb::handle slots, bool checked) {
    try {
        return Slots(slots, checked);
    } catch (nb::python_error&) {
        convert_token_ids(ids, "token_ids");
        throw;
    }
}

void check_counts(size_t ids, size_t slots) {
    if (ids == slots) return;
    raise(python().InvalidSlotsError,
          "slots must be one for each of " + std::to_string(ids) + " token_ids; got " +
              std::to_string(slots),
          "token_ids"_a = ids, "slots"_a = slots);
}

void check_known_length(uint32_t length, size_t size) {
    if (length <= size) return;
    raise(python().InvalidArgumentError, "after must be no longer than the " +
                                             std::to_string(size) + " token_ids; got " +
                                             std::to_string(length) + " tokens");
}

TicketsBinding& checked_tickets(nb::handle tickets) {
    TicketsBinding* binding = nullptr;
    if (nb::try_cast(tickets, binding) && binding) return *binding;
    raise(python().InvalidArgumentError,
          "tickets must be Tickets of the tree's core; got " +
              nb::cast<std::string>(tickets.type().attr("__name__")));
}

void check_room(const TicketRing& ring, size_t count) {
    if (count <= ring.free_size()) return;
    raise(python().OutOfSlotsError,
          "tickets must have " + std::to_string(count) + " free; got " +
              std::to_string(ring.free_size()),
          "needed"_a = count, "free"_a = ring.free_size());
}

// `tickets` come as `TicketRing::peek` gives them: they ascend, but where it begins again at 0.
nb::object slice_or_array(const std::vector<int32_t>& tickets) {
    if (tickets.empty()) return new_slice(0, 0);
    int64_t begin = tickets.front(), end = begin + static_cast<int64_t>(tickets.size());
    if (tickets.back() == end - 1) return new_slice(begin, end);
    return copy_wide(tickets.data(), tickets.size());
}

std::string show_row(nb::handle row) {
    if (!nb::hasattr(row, "dtype") || !nb::hasattr(row, "flags"))
        return nb::cast<std::string>(row.type().attr("__name__"));
    nb::object dtype = row.attr("dtype"), shape = row.attr("shape");
    std::string shown = nb::cast<std::string>(nb::str(dtype)) + " of shape " + show(shape);
    return nb::cast<bool>(row.attr("flags").attr("writeable")) ? shown : shown + ", read-only";
}

int32_t* checked_row(nb::handle row, size_t size) {
    int32_t* slots = writable_int32(row, size);
    if (slots) return slots;
    raise(python().InvalidArgumentError, "row must be a writable int32 array of at least " +
                                             std::to_string(size) + " slots; got " + show_row(row));
}

uint64_t checked_count(nb::handle count, const char* name) {
    int64_t value = PyLong_CheckExact(count.ptr()) ? clamp_int(count, name) : -1;
    if (value >= 0) return static_cast<uint64_t>(value);
    nb::dict named;
    named[name] = count;
    return nb::cast<uint64_t>(python().at_least(0, **named));
}

nb::object first_ids(nb::handle ids, nb::handle length) {
    if (length.is_none()) return nb::borrow(ids);
    uint64_t count = checked_count(length, "length");
    if (nb::object first = first_items(ids, count)) return first;
    return ids[nb::slice(nb::int_(0), nb::int_(count), nb::none())];
}

}  // namespace

TreeBinding::TreeBinding(nb::handle page_size, nb::handle policy, nb::handle shares)
    : policy_(nb::borrow(policy)),
      tree_(new_tree(page_size, policy, shares)),
      shares_(nb::handle(reinterpret_cast<PyObject*>(&PyDict_Type))(shares)),
      spaces_(tree_, share_numbers(shares)),
      content_(python().ContentTable()),
      number_(next_number++) {}

// Nothing where there is no content. checked: the spans were; ids are read unless they fit.
nb::object TreeBinding::encode(nb::handle ids, nb::handle content, bool intern,
                               bool checked) const {
    if (!is_given(content)) return {};
    nb::object tokens = token_array(ids, checked);
    return content_.attr("encode")(tokens, content, "intern"_a = intern, "checked"_a = checked);
}

// ---- looking ----

// Where codes below 0 are stored, an id below 0 may equal one, so that equality proves nothing.
template <class Key>
bool TreeBinding::is_suspect(const Key& key, uint32_t from) const {
    return content_codes_ > 0 && !key.is_good(from);
}

template <class Key>
std::optional<uint32_t> TreeBinding::probe_key(NodeId root, const Key& key) const {
    if (is_suspect(key, 0)) return std::nullopt;
    uint32_t length = tree_.descend(root, key, [](NodeId) {}).length;
    return key.is_good(length) ? std::optional(length) : std::nullopt;
}

uint32_t TreeBinding::probe(nb::handle ids, nb::handle space, nb::handle content, Checked checked) {
    nb::object codes = encode(ids, content, false, checked);
    NodeId root = NONE;
    return with_key(
        ids, codes, checked, [&] { root = spaces_.find(space); },
        [&](const auto& key) { return probe_key(root, key); });
}

// Makes the path of a descent the newest there is; where the descent ended.
Place TreeBinding::touch(const Descent& found, const Path& path) noexcept {
    NodeId last = found.partial;
    if (last == NONE && !path.empty()) last = path.back();
    tree_.touch(path);
    return tree_.place(last, found.length);
}

nb::object TreeBinding::match_result(nb::object slots, const Place& place) const {
    return named_tuple(python().MatchResult, place.length, std::move(slots), new_handle(place));
}

// copy_found(Path, Descent) comes before anything changes.
template <class Key, class CopyFound>
std::optional<Place> TreeBinding::match_key(NodeId root, const Key& key,
                                            const CopyFound& copy_found) {
    if (is_suspect(key, 0)) return std::nullopt;
    Descent found = tree_.descend(root, key, path_);
    if (!key.is_good(found.length)) return std::nullopt;
    copy_found(path_, found);
    return touch(found, path_);
}

template <class CopyFound>
Place TreeBinding::match(nb::handle ids, nb::handle space, nb::handle content, bool checked,
                         const CopyFound& copy_found) {
    nb::object codes = encode(ids, content, false, checked);
    NodeId root = NONE;
    return with_key(
        ids, codes, checked, [&] { root = settle([&] { return spaces_.find(space); }); },
        [&](const auto& key) { return match_key(root, key, copy_found); });
}

// The slots of what was found behind `from`, in an array.
nb::object TreeBinding::found_slots(const Path& path, const Descent& found, uint32_t from) const {
    if (found.length == from) return python().no_slots;
    int32_t* out;
    nb::object slots = new_array(found.length - from, out);
    tree_.copy_slots(path, found.partial, from, found.length, out);
    return slots;
}

nb::object TreeBinding::match_prefix(nb::handle ids, nb::handle space, nb::handle content,
                                     Checked checked) {
    nb::object slots;
    Place place = match(ids, space, content, checked, [&](const Path& path, const Descent& found) {
        int32_t* out;
        slots = new_array(found.length, out);
        tree_.copy_slots(path, found.partial, 0, found.length, out);
    });
    return match_result(std::move(slots), place);
}

nb::object TreeBinding::match_handle(nb::handle ids, nb::handle space, nb::handle content) {
    return new_handle(match(ids, space, content, false, [](const Path&, const Descent&) {}));
}

nb::object TreeBinding::path_slots(nb::handle object) {
    NodeId node;
    uint32_t length = resolve(object, node).place.length;
    int64_t* out;
    nb::object slots = new_array(length, out);
    if (!length) return slots;
    tree_.find_path(node, path_);
    tree_.copy_slots(path_, NONE, 0, length, out);
    return slots;
}

nb::object TreeBinding::path_slices(nb::handle object, nb::handle most) {
    uint64_t limit = checked_count(most, "most");
    NodeId node;
    uint32_t length = resolve(object, node).place.length;
    SlotSlices slices(limit);
    if (!length) return slices.made();
    tree_.find_path(node, path_);
    for (NodeId id : path_) {
        const Node& on_path = tree_.node(id);
        uint32_t size = std::min(on_path.end(), length) - on_path.start;
        if (!on_path.visit_slots(size, slices)) return nb::none();
    }
    return slices.made();
}

// ---- locks ----

nb::object TreeBinding::new_handle(const Place& place) const {
    nb::object object = nb::inst_alloc(reinterpret_cast<PyObject*>(handle_type()));
    auto* handle = new (nb::inst_ptr<Handle>(object)) Handle;
    handle->tree = number_;
    handle->epoch = epoch_;
    handle->place = place;
    handle->self = object.ptr();
    nb::inst_mark_ready(object);
    return object;
}

// The handle and the node that holds its last token; refuses what is not ours or not there.
Handle& TreeBinding::resolve(nb::handle object, NodeId& node, const char* name) const {
    const nb::object& error = python().StaleHandleError;
    if (!Py_IS_TYPE(object.ptr(), handle_type())) raise_no_handle(object, name);
    Handle& handle = *nb::inst_ptr<Handle>(object);
    if (handle.tree != number_) raise_no_handle(object, name);
    if (handle.epoch != epoch_) {
        raise(error,
              "the handle is of epoch " + std::to_string(handle.epoch) + ", the tree is in " +
                  std::to_string(epoch_) + "; match again",
              "epoch"_a = epoch_);
    }
    if (!tree_.resolve(handle.place, node)) {
        raise(error, "the handle's tokens were evicted; match again",
              "length"_a = handle.place.length);
    }
    return handle;
}

void TreeBinding::inc_lock_ref(nb::handle object) {
    wait_for_readers();
    NodeId node;
    Handle& handle = resolve(object, node);
    node = tree_.split_for_lock(node, handle.place);
    locked_.add_lock(handle);
    tree_.lock(node);
}

void TreeBinding::dec_lock_ref(nb::handle object) {
    wait_for_readers();
    NodeId node;
    Handle& handle = resolve(object, node);
    if (!handle.locks) {
        raise(python().NotLockedError, "the handle is not locked; inc_lock_ref comes first");
    }
    locked_.remove_lock(handle);
    tree_.unlock(node);
}

nb::object TreeBinding::path_of(nb::handle object) {
    NodeId node;
    uint32_t length = resolve(object, node).place.length;
    path_.clear();
    for (; node != NONE && tree_.node(node).parent != NONE; node = tree_.node(node).parent)
        path_.push_back(node);
    std::reverse(path_.begin(), path_.end());
    int32_t *codes, *slots;
    nb::object codes_array = new_array(length, codes), slots_array = new_array(length, slots);
    tree_.copy_slots(path_, NONE, 0, length, slots);
    for (NodeId id : path_) {
        const Node& own = tree_.node(id);
        std::copy_n(own.tokens(), std::min(own.end(), length) - own.start, codes + own.start);
    }
    return named_tuple(python().KeptPath, std::move(codes_array), std::move(slots_array));
}

// Locks what ends where a node ends, with room for that.
void TreeBinding::lock_whole(Handle& handle) {
    assert(handle.place.node == NONE || tree_.node(handle.place.node).end() == handle.place.length);
    tree_.lock(handle.place.node);
    locked_.add_lock(handle);
}

// ---- inserting ----

// Makes `handle` stand for the whole key. new_slots(begin, count) says what slots `count` tokens
// get from `begin` on. prepare(Path, Descent) is what fails last: nothing has changed before it,
// and what comes behind it does not fail.
template <class Key, class NewSlots, class Prepare>
std::optional<TreeBinding::Stored> TreeBinding::insert_key(NodeId root, Key key, const Insert& how,
                                                           nb::handle space, Handle& handle,
                                                           const NewSlots& new_slots,
                                                           const Prepare& prepare) {
    uint32_t from = how.known.length;
    if (is_suspect(key, from)) return std::nullopt;
    if (key.size - from != how.count) {
        if (!key.is_good(from)) return std::nullopt;
        check_counts(key.size - from, how.count);
    }
    uint32_t whole = key.size - key.size % tree_.page_size;
    if (!key.is_good(whole)) return std::nullopt;
    key.size = whole;
    Descent found = tree_.descend(from ? how.known.node : root, key, path_);
    uint32_t count = whole - found.length;
    TokenRun run(new_slots(found.length, count), count);
    if (!key.copy(found.length, count, run.tokens())) return std::nullopt;
    Stored stored = prepare_stored(run, how.has_content);
    if (count) reserve_changes(1);
    Growth growth = tree_.prepare(path_, found, std::move(run));
    prepare(path_, found);
    NodeId leaf = tree_.extend(path_, std::move(growth), root, how.priority, how.is_hit);
    handle.place = tree_.place(path_.empty() ? NONE : path_.back(), whole);
    if (leaf != NONE) record_stored(leaf, stored, space);
    return stored;
}

// Finds or makes the root for `space`, calls use(key), and counts the content that was stored.
// prepare() is for what may run Python code; whether it did not.
template <class Prepare, class Use>
void TreeBinding::insert_codes(nb::handle ids, const nb::object& codes, bool checked,
                               nb::handle space, const Prepare& prepare, const Use& use) {
    NodeId root = NONE;
    auto drop_empty_root = [&](void*) {
        if (root != NONE && tree_.node(root).is_leaf()) spaces_.remove(root);
    };
    std::unique_ptr<void, decltype(drop_empty_root)> guard(this, drop_empty_root);
    auto settle_all = [&] {
        do root = settle([&] { return spaces_.find_or_add(space); });
        while (!prepare());
    };
    Stored stored;
    try {
        stored = with_key(ids, codes, checked, settle_all,
                          [&](const auto& key) { return use(root, key); });
    } catch (...) {
        if (codes) content_.attr("settle")();
        throw;
    }
    if (stored.negative) content_.attr("retain")(stored.codes);
    if (codes) content_.attr("settle")();
}

// How many tokens the locked handle `after` stands for; 0 for None. Raises for a handle that is
// not locked, or of another namespace.
uint32_t TreeBinding::check_known(nb::handle after, nb::handle space) {
    NodeId node;
    if (after.is_none()) return 0;
    Handle& handle = resolve(after, node, "after");
    if (!handle.locks) {
        raise(python().NotLockedError, "after is not locked; inc_lock_ref comes first");
    }
    if (node != NONE && tree_.root_of(node) != spaces_.find(space)) {
        raise(python().InvalidArgumentError,
              "after must be of the given namespace; got a handle of another namespace");
    }
    return handle.place.length;
}

TreeBinding::Known TreeBinding::known_by(nb::handle after, size_t size) const {
    Known known;
    if (!after.is_none()) known.length = resolve(after, known.node).place.length;
    check_known_length(known.length, size);
    return known;
}

nb::object TreeBinding::insert(nb::handle ids, nb::handle slots, nb::handle space,
                               nb::handle content, nb::handle priority, Chunked chunked,
                               nb::handle after, Checked checked) {
    spaces_.check(space);
    int64_t rank = clamp_int(priority, "priority");
    uint32_t from = check_known(after, space);
    Slots own = check_slots(ids, slots, checked);
    if (is_given(content)) {
        size_t size = view_int32(token_array(ids, checked)).size;
        check_known_length(from, size);
        check_counts(size - from, own.size());
    }
    nb::object handle = new_handle({});
    nb::object result = new_named_tuple(python().InsertResult, 3);
    nb::object codes = encode(ids, content, true, checked);
    auto use = [&](NodeId root, const auto& key) {
        Insert how{own.size(), rank, !chunked, bool(codes), known_by(after, key.size)};
        auto new_slots = [&](uint32_t begin, uint32_t) { return own.items() + (begin - from); };
        auto copy_found = [&](const Path& path, const Descent& descent) {
            set_item(result, 0, nb::int_(descent.length));
            set_item(result, 1, found_slots(path, descent, from));
        };
        return insert_key(root, key, how, space, handle_in(handle), new_slots, copy_found);
    };
    insert_codes(ids, codes, checked, space, [] { return true; }, use);
    set_item(result, 2, std::move(handle));
    return result;
}

// Tickets are looked at first, and taken once they are in the tree.
nb::object TreeBinding::insert_from(nb::handle ids, nb::handle tickets, nb::handle space,
                                    nb::handle priority, Chunked chunked, nb::handle after) {
    spaces_.check(space);
    int64_t rank = clamp_int(priority, "priority");
    TicketRing& ring = checked_tickets(tickets).ring();
    uint32_t from = check_known(after, space);
    nb::object handle = new_handle({});
    nb::object result = new_named_tuple(python().InsertFromResult, 4);
    std::vector<int32_t> own;
    auto use = [&](NodeId root, const auto& key) {
        Known known = known_by(after, key.size);
        Insert how{key.size - known.length, rank, !chunked, false, known};
        auto new_slots = [&](uint32_t, uint32_t count) {
            own.resize(count);
            if (count <= ring.free_size()) ring.peek(count, own.data());
            return own.data();
        };
        auto copy_found = [&](const Path& path, const Descent& descent) {
            check_room(ring, own.size());
            set_item(result, 0, nb::int_(descent.length));
            set_item(result, 1, found_slots(path, descent, from));
            set_item(result, 3, slice_or_array(own));
        };
        auto stored = insert_key(root, key, how, space, handle_in(handle), new_slots, copy_found);
        if (stored) ring.take(own.data(), static_cast<uint32_t>(own.size()));
        return stored;
    };
    insert_codes(ids, {}, false, space, [] { return true; }, use);
    set_item(result, 2, std::move(handle));
    return result;
}

// ---- recording ----

// Makes sure that the next `count` changes are recorded without fail.
void TreeBinding::reserve_changes(size_t count) {
    if (!tracks_) return;
    if (!changes_) changes_ = nb::cast(Changes());
    nb::inst_ptr<Changes>(changes_)->reserve(count);
}

TreeBinding::Stored TreeBinding::prepare_stored(const TokenRun& run, bool has_content) const {
    Stored stored{has_content ? count_negative(run.tokens(), run.length) : 0, {}};
    if (stored.negative || (tracks_ && run.length))
        stored.codes = copy_array(run.tokens(), run.length);
    return stored;
}

void TreeBinding::record_stored(NodeId leaf, const Stored& stored, nb::handle space) noexcept {
    const Node &node = tree_.node(leaf), &parent = tree_.node(node.parent);
    content_codes_ += stored.negative;
    if (!tracks_) return;
    nb::inst_ptr<Changes>(changes_)->add({node.run, 0, parent.run,
                                          parent.run_offset + parent.length, stored.codes,
                                          nb::borrow(space)});
}

void TreeBinding::record_trimmed(const Trim& trim) noexcept {
    const Node& node = trim.node;
    if (tracks_) {
        nb::inst_ptr<Changes>(changes_)->add({node.run, node.run_offset + trim.keep, 0, 0, {}, {}});
    }
    if (!content_codes_) return;
    for (uint32_t i = trim.keep; i < node.length; ++i) {
        if (node.tokens()[i] < 0) *next_released_++ = node.tokens()[i];
    }
}

nb::object TreeBinding::take_changes() {
    if (!changes_ || !nb::inst_ptr<Changes>(changes_)->size()) return python().NO_CHANGES;
    return std::move(changes_);
}

// ---- evicting ----

// Of a wish for `wanted` tokens: whole pages of what is evictable.
uint64_t TreeBinding::count_victims(uint64_t wanted, ShareId whom) const {
    uint64_t page = tree_.page_size, pages = (wanted + page - 1) / page;
    return std::min(pages, tree_.room_for(whom) / page) * page;
}

nb::object TreeBinding::evict(nb::handle num_tokens, nb::handle space, nb::handle wanted) {
    uint64_t asked = checked_count(num_tokens, "num_tokens");
    uint64_t page = page_size(), coming = checked_count(wanted, "wanted");
    ShareId whom = spaces_.share_of(space);
    wait_for_readers();
    uint64_t count = count_victims(asked, whom);
    Claim claim = tree_.shares().claim(whom, (coming + page - 1) / page * page, count);
    int32_t* out;
    nb::object slots = new_array(count, out);
    prepare_eviction(count);
    evict_slots(count, out, claim);
    release_content();
    return slots;
}

nb::object TreeBinding::evict_to(nb::handle tickets, nb::handle num_tokens, nb::handle most) {
    TicketsBinding& taken_from = checked_tickets(tickets);
    uint64_t limit = checked_count(most, "most");
    uint64_t wanted = checked_count(num_tokens, "num_tokens");
    wait_for_readers();
    uint64_t count = count_victims(wanted, NO_SHARE);
    std::vector<int32_t> evicted(count);
    int64_t* out;
    nb::object array = new_array(count, out);
    prepare_eviction(count);
    evict_slots(count, evicted.data(), {});
    std::copy(evicted.begin(), evicted.end(), out);
    taken_from.free(evicted.data(), count);
    release_content();
    try {
        SlotSlices slices(limit);
        bool is_few = visit_ranges(evicted.data(), count, slices);
        return is_few ? nb::object(slices.made()) : array;
    } catch (const std::exception&) {  // no memory, but what was evicted must not be lost
        return array;
    }
}

void TreeBinding::advance_clock(nb::handle milliseconds) {
    tree_.policy().advance_clock(checked_count(milliseconds, "milliseconds"));
}

// What continues a key and may go. prepare() is for what may run Python code; whether it did not.
template <class Prepare>
TreeBinding::Below TreeBinding::find_below(nb::handle ids, nb::handle space, nb::handle content,
                                           const Prepare& prepare) {
    nb::object codes = encode(ids, content, false, false);
    if (!codes) codes = convert_token_ids(ids, "token_ids");
    auto array = view_int32(codes);
    Int32Key key{array.items, static_cast<uint32_t>(array.size), true};
    python().check_whole_pages(key.size, tree_.page_size);
    NodeId root = NONE;
    do root = settle([&] { return spaces_.find(space); });
    while (!prepare());
    Descent found = tree_.descend(root, key, path_);
    Below below;
    if (found.length < key.size) return below;
    NodeId partial = found.partial;
    NodeId top = partial != NONE ? partial : path_.empty() ? root : path_.back();
    tree_.unlocked_below(top, below.nodes);
    for (NodeId id : below.nodes) below.count += tree_.node(id).length;
    if (partial == NONE || tree_.node(partial).lock_ref) return below;
    below.cut = partial;
    below.keep = found.length - tree_.node(partial).start;
    below.count += tree_.node(partial).length - below.keep;
    return below;
}

void TreeBinding::evict_slots(const Below& below, int32_t* out) noexcept {
    record_eviction([&](const auto& on_trim, const auto& on_empty) noexcept {
        tree_.policy().begin_eviction(total_size(), below.count);
        for (NodeId id : below.nodes) out = tree_.drop_tail(id, 0, out, on_trim, on_empty);
        if (below.cut != NONE) tree_.drop_tail(below.cut, below.keep, out, on_trim, on_empty);
        tree_.policy().end_eviction(total_size());
    });
}

nb::object TreeBinding::evict_below(nb::handle ids, nb::handle space, nb::handle content) {
    Below below = find_below(ids, space, content, [] { return true; });
    int32_t* out;
    nb::object slots = new_array(below.count, out);
    if (!below.count) return slots;
    prepare_eviction(below.count);
    evict_slots(below, out);
    release_content();
    return slots;
}

uint64_t TreeBinding::evict_below_into(nb::handle ids, LedgerBinding& ledger, nb::handle space,
                                       nb::handle content) {
    Freeing freeing(ledger, nb::none());
    Below below = find_below(ids, space, content, [&] { return freeing.renew(); });
    if (!below.count) return 0;
    prepare_eviction(below.count);
    evict_slots(below, freeing.prepare(below.count));
    freeing.commit();
    release_content();
    return below.count;
}

uint64_t TreeBinding::evict_into(nb::handle num_tokens, LedgerBinding& ledger, nb::handle fence) {
    uint64_t wanted = checked_count(num_tokens, "num_tokens");
    Freeing freeing(ledger, fence);
    settle(freeing);
    uint64_t count = count_victims(wanted, NO_SHARE);
    prepare_eviction(count);
    evict_slots(count, freeing.prepare(count), {});
    freeing.commit();
    release_content();
    return count;
}

nb::object TreeBinding::evict_beyond_caps() {
    wait_for_readers();
    const Shares& shares = tree_.shares();
    uint64_t count = 0;
    for (ShareId id = 0; id < shares.size(); ++id) count += shares[id].beyond_cap(0);
    int32_t* out;
    nb::object slots = new_array(count, out);
    prepare_eviction(count);
    for (ShareId id = 0; id < shares.size(); ++id) {
        uint64_t own = shares[id].beyond_cap(0);
        if (!own) continue;
        evict_slots(own, out, {id, own});
        out += own;
    }
    release_content();
    return slots;
}

// Share by share, each of them whole.
uint64_t TreeBinding::evict_beyond_caps_into(LedgerBinding& ledger, nb::handle fence) {
    uint64_t count = 0;
    for (ShareId id = 0; id < tree_.shares().size(); ++id) {
        if (!tree_.shares()[id].beyond_cap(0)) continue;
        Freeing freeing(ledger, fence);
        settle(freeing);
        uint64_t own = tree_.shares()[id].beyond_cap(0);
        prepare_eviction(own);
        evict_slots(own, freeing.prepare(own), {id, own});
        freeing.commit();
        release_content();
        count += own;
    }
    return count;
}

// From here to the change no Python runs.
void TreeBinding::settle(Freeing& freeing) const {
    do wait_for_readers();
    while (!freeing.renew() || readers_.load());
}

// A victim is a node, and loses a page or more.
void TreeBinding::prepare_eviction(uint64_t count) {
    reserve_changes(std::min<uint64_t>(count / tree_.page_size, tree_.num_nodes()));
    empty_roots_.reserve(spaces_.size());
    if (!content_codes_) return;
    int32_t* begin = released_ ? static_cast<int32_t*>(array_data(released_)) : next_released_;
    uint64_t before = next_released_ - begin, most = std::min(count, content_codes_);
    int32_t* codes;
    nb::object grown = new_array(before + most, codes);  // without memory, what waits stays
    next_released_ = std::copy_n(begin, before, codes);
    std::fill_n(next_released_, most, 0);
    released_ = std::move(grown);
}

void TreeBinding::evict_slots(uint64_t count, int32_t* out, Claim claim) noexcept {
    record_eviction([&](const auto& on_trim, const auto& on_empty) noexcept {
        tree_.evict(count, out, on_trim, on_empty, claim);
    });
}

// Calls evict(on_trim, on_empty), for which `prepare_eviction` found the memory.
template <class Evict>
void TreeBinding::record_eviction(const Evict& evict) noexcept {
    empty_roots_.clear();
    int32_t* first_released = next_released_;
    evict([&](const Trim& trim) { record_trimmed(trim); },
          [&](NodeId root) { empty_roots_.push_back(root); });
    content_codes_ -= next_released_ - first_released;
    for (NodeId root : empty_roots_) spaces_.remove(root);
}

// Gives back what was prepared and not needed. Comes last: it runs Python code, which may find no
// memory. What went is no longer in the tree then, so the call ends well, and the codes wait for
// the next eviction.
void TreeBinding::release_content() {
    if (changes_) nb::inst_ptr<Changes>(changes_)->shrink();
    if (!released_) return;
    nb::object released = std::move(released_);
    int32_t* next = next_released_;
    try {
        content_.attr("release")(released);
    } catch (const nb::python_error& error) {
        if (!error.matches(PyExc_MemoryError)) throw;
        released_ = std::move(released);
        next_released_ = next;
    }
}

nb::object TreeBinding::reset() {
    nb::object fresh = python().ContentTable();
    wait_for_readers();
    nb::object slots = all_slots();
    forget(fresh);
    return slots;
}

void TreeBinding::reset_into(LedgerBinding& ledger, nb::handle readers) {
    nb::object fresh = python().ContentTable();
    Freeing freeing(ledger, nb::none());
    settle(freeing);
    nb::object slots = all_slots();
    auto all = view_int32(slots), reads = view_int32(readers);
    ledger.check_range(all.items, all.size);
    if (reads.size < ledger.size())
        raise(python().InvalidArgumentError, "readers must be an int32 array, one for each slot");
    std::vector<int32_t> read;
    for (size_t i = 0; i < all.size; ++i) {
        if (reads.items[all.items[i]] > 0) read.push_back(all.items[i]);
    }
    std::copy_if(all.items, all.items + all.size, freeing.prepare(all.size - read.size()),
                 [&](int32_t slot) { return reads.items[slot] == 0; });
    forget(fresh);
    freeing.commit();
    ledger.retire(read, reads.items);
}

void TreeBinding::forget(nb::object& fresh_content) noexcept {
    locked_.clear();
    tree_.clear();
    spaces_.clear();
    changes_.reset();
    content_codes_ = 0;
    released_.reset();
    ++epoch_;
    std::swap(content_, fresh_content);
}

// ---- a request's admission and publication ----

// Slots for `count` tokens, with what is to be evicted for them. May run Python code, which may
// raise.
TreeBinding::Taking TreeBinding::prepare_take(uint64_t count, LedgerBinding& ledger,
                                              nb::handle space, Freeing& freeing) {
    uint64_t coming = ledger.coming_size();
    Taking taking{count};
    taking.has_room = count <= coming;
    if (taking.has_room) return taking;
    ShareId whom = spaces_.share_of(space);
    settle(freeing);  // a fence may have let other threads run
    taking.has_room = count <= coming + tree_.room_for(whom);
    if (!taking.has_room) return taking;
    taking.evicted = count - coming;
    taking.claim = tree_.shares().claim(whom, count, taking.evicted);
    prepare_eviction(taking.evicted);
    ledger.reserve(count);
    return taking;
}

// Whether they were taken. Whatever a fence does, what is evicted is freed.
bool TreeBinding::take(const Taking& taking, LedgerBinding& ledger, Freeing& freeing,
                       int32_t* out) {
    if (!taking.has_room) return false;
    if (taking.evicted) {
        evict_slots(taking.evicted, freeing.prepare(taking.evicted), taking.claim);
        freeing.commit();
        release_content();
    }
    return ledger.take(taking.count, out);
}

nb::object TreeBinding::take(nb::handle n, LedgerBinding& ledger, nb::handle space) {
    nb::object answer = nb::make_tuple(ledger.take(n), 0);
    if (!answer[0].is_none()) return answer;
    int32_t* out;
    Freeing freeing(ledger, nb::none());
    Taking taking = prepare_take(nb::cast<uint64_t>(n), ledger, space, freeing);
    if (!taking.has_room) return answer;
    nb::object slots = new_array(taking.count, out);
    set_item(answer, 1, nb::int_(taking.evicted));
    if (take(taking, ledger, freeing, out)) set_item(answer, 0, std::move(slots));
    return answer;
}

nb::object TreeBinding::admit(nb::handle token_ids, LedgerBinding& ledger, nb::handle row,
                              nb::handle space, nb::handle content, nb::handle max_cached,
                              nb::handle extra, nb::handle length) {
    nb::object ids = first_ids(token_ids, length);
    uint64_t more = checked_count(extra, "extra");
    uint64_t limit = max_cached.is_none() ? UINT64_MAX : checked_count(max_cached, "max_cached");
    nb::object codes = encode(ids, content, false, true);
    nb::object handle = new_handle({});
    nb::object answer = new_named_tuple(python().AdmitResult, 3);
    Freeing freeing(ledger, nb::none());
    NodeId root = NONE;
    uint64_t needed = 0;
    Descent found;
    with_key(
        ids, codes, false, [&] { root = settle([&] { return spaces_.find(space); }); },
        [&](auto key) -> std::optional<bool> {
            if (is_suspect(key, 0)) return std::nullopt;
            auto start = key;
            start.size = static_cast<uint32_t>(std::min<uint64_t>(key.size, limit));
            found = tree_.descend(root, start, path_);
            if (!key.is_good(found.length)) return std::nullopt;
            uint64_t page = page_size(), all = key.size + more;
            needed = (all + page - 1) / page * page;
            return true;
        });
    int32_t* table = checked_row(row, needed);
    tree_.copy_slots(path_, found.partial, 0, found.length, table);
    // Lock before judging capacity: what is about to be used is not evictable.
    handle_in(handle).place = touch(found, path_);
    inc_lock_ref(handle);
    bool is_taken = false;
    try {
        Taking taking = prepare_take(needed - found.length, ledger, space, freeing);
        nb::int_ cached(taking.has_room ? found.length : 0), evicted(taking.evicted);
        is_taken = take(taking, ledger, freeing, table + found.length);
        set_item(answer, 0, is_taken ? nb::object(std::move(cached)) : nb::int_(0));
        set_item(answer, 2, std::move(evicted));
    } catch (...) {  // a fence may raise
        dec_lock_ref(handle);
        throw;
    }
    if (!is_taken) {
        dec_lock_ref(handle);
    } else {
        set_item(answer, 1, std::move(handle));
    }
    return answer;
}

nb::object TreeBinding::publish(nb::handle token_ids, LedgerBinding& ledger, nb::handle row,
                                nb::handle space, nb::handle content, nb::handle priority,
                                Chunked chunked, nb::handle held, nb::handle fence,
                                nb::handle length, bool unlock) {
    nb::object ids = first_ids(token_ids, length);
    spaces_.check(space);
    int64_t rank = clamp_int(priority, "priority");
    check_known(held, space);
    nb::object handle = new_handle({});
    nb::object result = new_named_tuple(python().PublishResult, 2);
    Freeing duplicates(ledger, fence);
    nb::object codes = encode(ids, content, true, true);
    auto use = [&](NodeId root, const auto& key) {
        Known known = known_by(held, key.size);
        int32_t *table = checked_row(row, key.size), *own = table + known.length;
        Insert how{key.size - known.length, rank, !chunked, bool(codes), known};
        ledger.check_range(own, how.count);
        auto new_slots = [&](uint32_t begin, uint32_t) { return table + begin; };
        auto free_duplicates = [&](const Path& path, const Descent& found) {
            set_item(result, 0, nb::int_(found.length));
            duplicates.prepare_return(own, found.length - known.length);
            duplicates.commit();
            tree_.copy_slots(path, found.partial, known.length, found.length, own);
        };
        auto stored =
            insert_key(root, key, how, space, handle_in(handle), new_slots, free_duplicates);
        if (!stored) return stored;
        if (!unlock) lock_whole(handle_in(handle));
        if (!held.is_none()) dec_lock_ref(held);
        return stored;
    };
    insert_codes(ids, codes, false, space, [&] { return duplicates.renew(); }, use);
    set_item(result, 1, unlock ? nb::none() : std::move(handle));
    return result;
}

}  // namespace radixkv
