#include "planner.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <unordered_map>

namespace radixkv {

namespace {

int64_t divided_up(int64_t a, int64_t b) {
    assert(a >= 0 && b > 0);
    return (a + b - 1) / b;
}

// Length of what two requests have in common and see alike, `low` at least.
int32_t common(const Row& one, const Row& other, int32_t low) {
    int32_t high = std::min(one.full_end(), other.full_end());
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (one.slots[middle] == other.slots[middle])
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Whether what `requests` save by reading a run once is worth `share` slots to each.
bool pays(int64_t length, size_t requests, int32_t share) {
    const int64_t n = static_cast<int64_t>(requests);
    return length * (n - 1) >= share * n;
}

// Only the narrow kernels know of tokens that do not see all of a run.
bool is_wide(const SharedRun& run, const Shape& shape) {
    return run.is_shared() && run.tokens * shape.group > shape.narrow_rows;
}

int64_t num_tiles(const SharedRun& run, const Shape& shape) {
    const int64_t rows = is_wide(run, shape) ? shape.wide_rows : shape.narrow_rows;
    return divided_up(run.tokens, std::max<int64_t>(1, rows / shape.group));
}

// Tokens of a tile: all tiles of a run are of about the same size.
int64_t tile_size(const SharedRun& run, const Shape& shape) {
    return divided_up(run.tokens, num_tiles(run, shape));
}

// Slots of the pieces into which runs are cut.
class Chunks {
  public:
    Chunks(const std::vector<SharedRun>& runs, const Shape& shape) : runs_(runs), shape_(shape) {
        narrow_work_ = narrow_work();
        wide_ = wide_chunk();
        const int64_t even = divided_up(narrow_work_, shape.narrow_blocks);
        narrow_ =
            std::min<int64_t>(std::max<int64_t>(even, shape.shortest_narrow), shape.longest_narrow);
    }

    // A multiple of 32; the last piece may be shorter.
    int64_t step(const SharedRun& run) const {
        const int64_t pieces =
            is_wide(run, shape_)
                ? divided_up(run.length(), wide_)
                : std::max<int64_t>(1, (2 * run.length() + narrow_) / (2 * narrow_));
        return divided_up(divided_up(run.length(), pieces), 32) * 32;
    }

  private:
    int64_t narrow_work() const {
        int64_t slots = 0;
        for (const SharedRun& run : runs_)
            if (!is_wide(run, shape_)) slots += run.length() * num_tiles(run, shape_);
        return slots * shape_.kv_heads;
    }

    int64_t wide_chunk() const {
        int64_t blocks = 0, work = 0, halves = 0;
        for (const SharedRun& run : runs_) {
            if (!is_wide(run, shape_)) continue;
            const int64_t weight = num_tiles(run, shape_) * shape_.kv_heads;
            const bool is_half = 2 * tile_size(run, shape_) * shape_.group <= shape_.wide_rows;
            blocks += weight;
            work += run.length() * weight;
            halves += run.length() * weight * (is_half ? 1 : 2);
        }
        if (!blocks) return shape_.shortest_wide;
        const bool few = halves < 2 * narrow_work_;
        const int64_t at_once = few ? std::max(1, shape_.wide_blocks / 2) : shape_.wide_blocks;
        const int64_t most = divided_up(blocks, at_once) * at_once;
        int64_t chunk = std::max<int64_t>(shape_.shortest_wide, divided_up(work, most));
        while (blocks_at(chunk) > most) chunk += std::max<int64_t>(1, chunk / 16);
        return chunk;
    }

    int64_t blocks_at(int64_t chunk) const {
        int64_t blocks = 0;
        for (const SharedRun& run : runs_)
            if (is_wide(run, shape_))
                blocks += divided_up(run.length(), chunk) * num_tiles(run, shape_);
        return blocks * shape_.kv_heads;
    }

    const std::vector<SharedRun>& runs_;
    const Shape& shape_;
    int64_t narrow_work_, wide_, narrow_;
};

}  // namespace

Planner::Planner(std::vector<Row> rows) : rows_(std::move(rows)) {
    int32_t first = 0;
    for (const Row& row : rows_) {
        assert(0 < row.query_len && row.query_len <= row.length);
        first_tokens_.push_back(first);
        first += row.query_len;
    }
}

Plan Planner::cut(const Shape& shape) {
    const Runs& runs = shared_runs(shape.share);
    const Chunks chunks(runs, shape);
    std::vector<int32_t> num_parts(rows_.size(), 0);
    std::vector<Piece> wide, narrow;
    for (const SharedRun& run : runs) {
        std::vector<Piece>& kind = is_wide(run, shape) ? wide : narrow;
        const int64_t step = chunks.step(run);
        for (int64_t start = run.start; start < run.end; start += step) {
            add_pieces(run, start, std::min<int64_t>(start + step, run.end), shape, num_parts,
                       kind);
            for (int32_t request : run.requests) num_parts[request]++;
        }
    }
    Plan plan;
    plan.merge_indptr = merge_indptr_of(num_parts);
    pack(wide, plan, plan.wide);
    pack(narrow, plan, plan.narrow);
    assert(plan.q_indices.size() == 2 * static_cast<size_t>(plan.merge_indptr.back()));
    plan.growing = growing(plan.narrow);
    for (const SharedRun& run : runs)
        plan.runs.insert(plan.runs.end(),
                         {run.row, run.start, run.end, static_cast<int32_t>(run.requests.size())});
    return plan;
}

Survey Planner::survey(const Shape& shape) {
    struct Kind {
        int64_t items = 0, slots = 0, halves = 0, longest = 0;
    } wide, narrow;
    const Runs& runs = shared_runs(shape.share);
    const Chunks chunks(runs, shape);
    std::vector<int64_t> num_parts(rows_.size(), 0);
    int64_t parts = 0, unique = 0, total = 0, shared = 0;
    for (const SharedRun& run : runs) {
        Kind& kind = is_wide(run, shape) ? wide : narrow;
        const int64_t step = chunks.step(run), pieces = divided_up(run.length(), step);
        const int64_t slots = run.length() * num_tiles(run, shape);
        kind.items += pieces * num_tiles(run, shape);
        kind.slots += slots;
        kind.halves += tile_size(run, shape) * shape.group <= 64 ? slots : 2 * slots;
        kind.longest = std::max(kind.longest, std::min(step, run.length()));
        for (int32_t request : run.requests) num_parts[request] += pieces;
        parts += pieces * run.tokens;
        unique += run.length();
        total += run.length() * static_cast<int64_t>(run.requests.size());
        shared += run.is_shared();
    }
    const int64_t most = *std::max_element(num_parts.begin(), num_parts.end());
    return {wide.items,     wide.slots, wide.halves, wide.longest, narrow.items, narrow.slots,
            narrow.longest, parts,      most,        unique,       total,        shared};
}

const Planner::Runs& Planner::shared_runs(int32_t share) {
    auto found = runs_.find(share);
    if (found != runs_.end()) return found->second;
    // What a smaller share found is the same where all of it would pay for this one, too.
    for (const auto& [smaller, runs] : runs_)
        if (smaller < share && std::all_of(
                                   runs.begin(), runs.end(),
                                   [share](const SharedRun& run) {
                                       return !run.is_shared() ||
                                              pays(run.length(), run.requests.size(), share);
                                   }))
            return runs;
    return runs_.emplace(share, find_runs(share)).first->second;
}

Planner::Runs Planner::find_runs(int32_t share) const {
    Runs runs;
    std::vector<int32_t> all(rows_.size());
    std::iota(all.begin(), all.end(), 0);
    std::vector<Group> todo;
    todo.push_back({std::move(all), 0, 0});
    while (!todo.empty()) {
        const Group group = std::move(todo.back());
        todo.pop_back();
        std::vector<Group> later;
        for (std::vector<int32_t>& same : by_slot(group)) visit(group, same, share, runs, later);
        for (auto each = later.rbegin(); each != later.rend(); ++each)
            todo.push_back(std::move(*each));
    }
    return runs;
}

// The group's parts by the slot at `at`, in the order in which their slots come first. One of the
// parts are those that share no more: their new tokens see different positions from there on.
std::vector<std::vector<int32_t>> Planner::by_slot(const Group& group) const {
    std::vector<std::vector<int32_t>> parts;
    std::unordered_map<int32_t, size_t> known;
    for (int32_t request : group.requests) {
        const Row& row = rows_[request];
        const int32_t slot = group.at < row.full_end() ? row.slots[group.at] : -1;
        auto [found, is_new] = known.try_emplace(slot, parts.size());
        if (is_new) parts.emplace_back();
        parts[found->second].push_back(request);
    }
    return parts;
}

void Planner::visit(const Group& group, std::vector<int32_t>& same, int32_t share, Runs& runs,
                    std::vector<Group>& later) const {
    const Row& first = rows_[same[0]];
    if (same.size() == 1 || group.at == first.full_end()) {
        for (int32_t request : same)
            if (group.begin < rows_[request].length) runs.push_back(own_run(request, group.begin));
        return;
    }
    int32_t end = first.full_end();
    for (size_t i = 1; i < same.size(); i++)
        end = std::min(end, common(first, rows_[same[i]], group.at));
    int32_t begin = group.begin;
    if (pays(end - begin, same.size(), share)) {
        runs.push_back({same[0], begin, end, same, num_tokens(same)});
        begin = end;
    }
    later.push_back({std::move(same), end, begin});
}

SharedRun Planner::own_run(int32_t request, int32_t begin) const {
    const Row& row = rows_[request];
    return {request, begin, row.length, {request}, row.query_len};
}

int64_t Planner::num_tokens(const std::vector<int32_t>& requests) const {
    int64_t tokens = 0;
    for (int32_t request : requests) tokens += rows_[request].query_len;
    return tokens;
}

// A piece of a run under each of its tiles.
void Planner::add_pieces(const SharedRun& run, int64_t start, int64_t end, const Shape& shape,
                         const std::vector<int32_t>& num_parts, std::vector<Piece>& pieces) const {
    const int64_t size = tile_size(run, shape);
    const int32_t full_end = rows_[run.row].full_end();
    int64_t at = 0;
    for (int32_t request : run.requests)
        for (int32_t token = 0; token < rows_[request].query_len; token++, at++) {
            if (at % size == 0) {
                const int64_t limit = full_end + at;
                const bool sees_all = run.is_shared() || end <= limit;
                pieces.push_back({run.row,
                                  static_cast<int32_t>(start),
                                  static_cast<int32_t>(end),
                                  static_cast<int32_t>(sees_all ? end : limit),
                                  !sees_all,
                                  {}});
            }
            pieces.back().parts.emplace_back(first_tokens_[request] + token, num_parts[request]);
        }
}

std::vector<int32_t> Planner::merge_indptr_of(const std::vector<int32_t>& num_parts) const {
    std::vector<int32_t> merge_indptr{0};
    for (size_t request = 0; request < rows_.size(); request++)
        for (int32_t token = 0; token < rows_[request].query_len; token++)
            merge_indptr.push_back(merge_indptr.back() + num_parts[request]);
    return merge_indptr;
}

void Planner::pack(std::vector<Piece>& pieces, Plan& plan, std::vector<int32_t>& items) const {
    // The longest first, so that the last to start are the first to end.
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& one, const Piece& other) {
        return one.end - one.start > other.end - other.start;
    });
    for (const Piece& piece : pieces) {
        assert(piece.start < piece.end && !piece.parts.empty());
        const int32_t first = static_cast<int32_t>(plan.q_indices.size() / 2);
        const int32_t count = static_cast<int32_t>(piece.parts.size());
        items.insert(items.end(),
                     {piece.row, piece.start, piece.end, first, count, piece.limit, piece.step, 0});
        for (auto [token, part] : piece.parts) {
            plan.q_indices.push_back(token);
            plan.q_indices.push_back(plan.merge_indptr[token] + part);
        }
    }
}

// The narrow item at the end of each row, -1 where that is shared or of several tokens.
std::vector<int32_t> Planner::growing(const std::vector<int32_t>& narrow) const {
    std::vector<int32_t> items(rows_.size(), -1);
    for (size_t item = 0; item < narrow.size() / 8; item++) {
        const int32_t* fields = narrow.data() + 8 * item;
        const Row& row = rows_[fields[0]];
        if (fields[4] == 1 && row.query_len == 1 && fields[2] == row.length)
            items[fields[0]] = static_cast<int32_t>(item);
    }
    return items;
}

}  // namespace radixkv
