// What must be true of the holdings, found by walking everything.
#include "holdings.hpp"

namespace radixkv {

std::vector<std::string> Holdings::check() const {
    std::vector<std::string> wrong;
    uint64_t nodes = 0, tokens = 0;
    for (NodeId id = 1; id < nodes_.bound(); ++id) {
        if (nodes_[id].parent == NONE) continue;
        check_node(id, wrong);
        nodes += 1;
        tokens += nodes_[id].length;
    }
    if (nodes != num_nodes_ || edges_.size() != num_nodes_) {
        wrong.push_back(std::to_string(nodes) + " nodes are there, " + std::to_string(num_nodes_) +
                        " counted");
    }
    if (tokens != total_size_) {
        wrong.push_back(std::to_string(total_size_) + " tokens are counted, the nodes have " +
                        std::to_string(tokens));
    }
    size_t runs = 0;
    for (uint32_t holder = 0; holder < holders_.size(); ++holder) {
        if (holders_[holder].top == NONE) continue;
        uint64_t own = 0;
        each_run(holder, [&](const HeldRun& run) {
            own += run.length;
            runs += 1;
            if (nodes_[run.node].start >= run.end() || nodes_[run.node].end() < run.end()) {
                wrong.push_back("run " + std::to_string(run.number) + " of " +
                                std::to_string(holder) + " does not end where it says");
            }
        });
        if (own != holders_[holder].tokens) {
            wrong.push_back("holder " + std::to_string(holder) + " has " +
                            std::to_string(holders_[holder].tokens) + " tokens, its runs " +
                            std::to_string(own));
        }
    }
    if (runs != numbers_.size()) wrong.push_back("the table has other runs than the holders");
    check_branches(wrong);
    return wrong;
}

void Holdings::check_branches(std::vector<std::string>& wrong) const {
    Branches::Counts found;
    for (NodeId id = 1; id < nodes_.bound(); ++id) {
        const UnionNode& node = nodes_[id];
        if (node.parent == NONE) continue;
        for (uint32_t holder = 0; holder < holders_.size(); ++holder) {
            bool is_inside = node.start % holders_[holder].page_size != 0;
            if (is_inside && held_end(id, holder) > node.start) {
                found[Branches::key(holder, node.parent)] += 1;
            }
        }
    }
    for (auto& [key, count] : found) count -= 1;
    std::erase_if(found, [](const auto& one) { return one.second == 0; });
    if (found != branches_.counts()) {
        wrong.push_back("runs that share the beginning of a page are counted, there are others");
    }
}

void Holdings::check_node(NodeId id, std::vector<std::string>& wrong) const {
    const UnionNode &node = nodes_[id], &parent = nodes_[node.parent];
    std::string where =
        "the node at " + std::to_string(node.start) + " to " + std::to_string(node.end());
    auto fault = [&](const std::string& what) { wrong.push_back(where + " " + what); };
    if (!node.length || node.start != parent.end()) fault("hangs elsewhere");
    if (!node.length) return;
    if (find_child(node.parent, Int32Key{node.tokens, 1}, 0) != id) fault("is not found");
    if (full_.is_empty(id)) fault("has a last token without a holder");
    if (is_joined_ && node.children == 1 && full_.is_equal(id, node.child_xor)) {
        fault("and its only child are held alike, and apart");
    }
    auto holds_above = [&](uint32_t holder) {
        return parent.is_root || full_.has(node.parent, holder);
    };
    for (uint32_t holder = 0; holder < holders_.size(); ++holder) {
        if (full_.has(id, holder) && !holds_above(holder)) fault("is held without what is above");
    }
    for (RunId end = node.partial; end != NONE; end = runs_[end].next_end) {
        const HeldRun& run = runs_[end];
        bool is_inside = node.start < run.end() && run.end() < node.end();
        if (full_.has(id, run.holder) || !is_inside || run.node != id || !run.is_partial ||
            !holds_above(run.holder)) {
            fault("lists an end inside that is not one");
        }
    }
    for (RunId end = node.ends; end != NONE; end = runs_[end].next_end) {
        const HeldRun& run = runs_[end];
        if (run.node != id || run.is_partial || run.end() <= node.start || run.end() > node.end()) {
            fault("has an end that is elsewhere");
        }
    }
}

}  // namespace radixkv
