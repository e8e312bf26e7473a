#include "planner.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace radixkv {

namespace {

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t rounded(int64_t length, int64_t chunk) {
    return std::max<int64_t>(1, (2 * length + chunk) / (2 * chunk));
}

int32_t common(const Row& one, const Row& other, int32_t low) {
    int32_t high = std::min(one.length, other.length);
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (one.slots[middle] == other.slots[middle])
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

}  // namespace

void Planner::plan() {
    find_runs();
    parts_.assign(rows_.size(), 0);
    const int64_t wide_chunk = this->wide_chunk(), narrow_chunk = this->narrow_chunk();
    for (const SharedRun& run : runs) {
        const bool is_wide = this->is_wide(run);
        const int64_t n =
            is_wide ? divided_up(run.length(), wide_chunk) : rounded(run.length(), narrow_chunk);
        cut(run, n, is_wide ? wide_ : narrow_);
    }
    pack();
}

// The group's parts by the slot at `at`, in the order in which their slots come first.
std::vector<std::vector<int32_t>> Planner::by_slot(const Group& group) const {
    std::vector<std::vector<int32_t>> parts;
    std::unordered_map<int32_t, size_t> known;
    for (int32_t request : group.requests) {
        const Row& row = rows_[request];
        const int32_t slot = group.at < row.length ? row.slots[group.at] : -1;
        auto [found, is_new] = known.try_emplace(slot, parts.size());
        if (is_new) parts.emplace_back();
        parts[found->second].push_back(request);
    }
    return parts;
}

void Planner::find_runs() {
    std::vector<int32_t> all(rows_.size());
    std::iota(all.begin(), all.end(), 0);
    std::vector<Group> todo;
    todo.push_back({std::move(all), 0, 0});
    while (!todo.empty()) {
        const Group group = std::move(todo.back());
        todo.pop_back();
        std::vector<Group> later;
        for (std::vector<int32_t>& same : by_slot(group)) visit(group, same, later);
        for (auto each = later.rbegin(); each != later.rend(); ++each)
            todo.push_back(std::move(*each));
    }
}

void Planner::visit(const Group& group, std::vector<int32_t>& same, std::vector<Group>& later) {
    const Row& first = rows_[same[0]];
    if (same.size() == 1 || group.at == first.length) {
        for (int32_t request : same)
            if (group.begin < rows_[request].length)
                runs.push_back({request, group.begin, rows_[request].length, {request}});
        return;
    }
    int32_t end = first.length;
    for (size_t i = 1; i < same.size(); i++)
        end = std::min(end, common(first, rows_[same[i]], group.at));
    const int64_t n = static_cast<int64_t>(same.size());
    int32_t begin = group.begin;
    if ((end - begin) * (n - 1) >= shape_.share * n) {
        runs.push_back({same[0], begin, end, same});
        begin = end;
    }
    later.push_back({std::move(same), end, begin});
}

bool Planner::is_wide(const SharedRun& run) const {
    return static_cast<int64_t>(run.requests.size()) * shape_.group > shape_.narrow_rows;
}

// How many requests a tile of the run has.
int64_t Planner::tile_size(const SharedRun& run) const {
    const int64_t rows = is_wide(run) ? shape_.wide_rows : shape_.narrow_rows;
    const int64_t most = std::max<int64_t>(1, rows / shape_.group);
    const int64_t n = static_cast<int64_t>(run.requests.size());
    return divided_up(n, divided_up(n, most));
}

int64_t Planner::num_tiles(const SharedRun& run) const {
    return divided_up(static_cast<int64_t>(run.requests.size()), tile_size(run));
}

int64_t Planner::wide_chunk() const {
    int64_t blocks = 0, work = 0, halves = 0;
    for (const SharedRun& run : runs) {
        if (!is_wide(run)) continue;
        blocks += num_tiles(run) * shape_.kv_heads;
        const int64_t here = run.length() * num_tiles(run) * shape_.kv_heads;
        const bool is_half = 2 * tile_size(run) * shape_.group <= shape_.wide_rows;
        work += here;
        halves += is_half ? here : 2 * here;
    }
    if (!blocks) return shape_.shortest_wide;
    const bool few = halves < 2 * narrow_work();
    const int64_t at_once = few ? std::max(1, shape_.wide_blocks / 2) : shape_.wide_blocks;
    const int64_t most = divided_up(blocks, at_once) * at_once;
    int64_t chunk = std::max<int64_t>(shape_.shortest_wide, divided_up(work, most));
    while (blocks_at(chunk) > most) chunk += std::max<int64_t>(1, chunk / 16);
    return chunk;
}

int64_t Planner::blocks_at(int64_t chunk) const {
    int64_t blocks = 0;
    for (const SharedRun& run : runs)
        if (is_wide(run))
            blocks += divided_up(run.length(), chunk) * num_tiles(run) * shape_.kv_heads;
    return blocks;
}

int64_t Planner::narrow_work() const {
    int64_t total = 0;
    for (const SharedRun& run : runs)
        if (!is_wide(run)) total += run.length() * num_tiles(run);
    return total * shape_.kv_heads;
}

int64_t Planner::narrow_chunk() const {
    const int64_t even = divided_up(narrow_work(), shape_.narrow_blocks);
    return std::min<int64_t>(std::max<int64_t>(even, shape_.shortest_narrow),
                             shape_.longest_narrow);
}

// Into n pieces, or fewer: they end where a block of slots does.
void Planner::cut(const SharedRun& run, int64_t n, std::vector<Piece>& pieces) {
    const int64_t step = divided_up(divided_up(run.length(), n), 32) * 32;
    const size_t size = static_cast<size_t>(tile_size(run));
    for (int64_t start = run.start; start < run.end; start += step) {
        const int64_t end = std::min<int64_t>(start + step, run.end);
        for (size_t at = 0; at < run.requests.size(); at += size) {
            Piece piece{run.row, static_cast<int32_t>(start), static_cast<int32_t>(end), {}};
            for (size_t i = at; i < std::min(at + size, run.requests.size()); i++)
                piece.parts.emplace_back(run.requests[i], parts_[run.requests[i]]);
            pieces.push_back(std::move(piece));
        }
        for (int32_t request : run.requests) parts_[request]++;
    }
}

void Planner::pack() {
    starts.push_back(0);
    for (int32_t parts : parts_) starts.push_back(starts.back() + parts);
    growing.assign(rows_.size(), -1);
    pack_items(wide_, wide);
    pack_items(narrow_, narrow);
    for (size_t item = 0; item < narrow.size() / 8; item++) {
        const int32_t* fields = narrow.data() + 8 * item;
        if (fields[4] == 1 && fields[2] == rows_[fields[0]].length)
            growing[fields[0]] = static_cast<int32_t>(item);
    }
}

void Planner::pack_items(std::vector<Piece>& pieces, std::vector<int32_t>& items) {
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& one, const Piece& other) {
        return one.end - one.start > other.end - other.start;
    });
    for (const Piece& piece : pieces) {
        const int32_t first = static_cast<int32_t>(q_indices.size() / 2);
        const int32_t count = static_cast<int32_t>(piece.parts.size());
        items.insert(items.end(),
                     {piece.row, piece.start, piece.end, first, count, piece.end, 0, 0});
        for (auto [request, part] : piece.parts) {
            q_indices.push_back(request);
            q_indices.push_back(starts[request] + part);
        }
    }
}

}  // namespace radixkv
