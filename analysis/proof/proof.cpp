// SPDX-License-Identifier: MIT
#include "analysis/proof/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/proof/search.h"
#include "analysis/proof/trial_book.h"
#include "analysis/proof/trial_runner.h"
#include "analysis/rules/text.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// Returns the members sorted: changes of nodes by name, then the lane's, then the loss scale.
std::vector<PlanEdit> sorted_members(const PlanEdit& edit) {
  std::vector<PlanEdit> members = edit.members();
  const auto end = std::find_if(members.begin(), members.end(), [](const PlanEdit& member) {
    return member.changes.front().path.empty();
  });
  std::sort(members.begin(), end,
            [](const PlanEdit& a, const PlanEdit& b) { return a.member_name() < b.member_name(); });
  return members;
}

std::string in_words(const PlanEdit& member) {
  if (member.reduction()) return "the other reduction over ranks";
  const bool is_layer = member.has(FixKind::operator_fp32);
  return (is_layer ? "fp32 for " : "") + part_text(member.member_name());
}

/// Returns whether dynamic scaling reaches the advised scale without help. It comes down to that
/// scale unless it starts far above, and rarely climbs. Returns false if the scale is the whole
/// advice.
bool finds_its_scale(const PlanEdit& edit, const LossScalerConfig& scaler) {
  constexpr double kComesDown = 0x1p16;
  const double start = scaler.initial;
  const bool alone =
      edit.fp32_layers().empty() && !edit.has(FixKind::weights_fp32) && !edit.reduction();
  return !is_static(scaler) && !alone && start >= *edit.loss_scale() &&
         start <= kComesDown * *edit.loss_scale();
}

class Prover {
 public:
  Prover(LaneConfig original, const Recommendation& advice, TrialRunner& trials,
         const SearchOptions& search, const std::atomic<bool>& stop)
      : original_(std::move(original)),
        trials_(trials),
        search_(search),
        stop_(stop),
        book_(original_, trials, stop, search.budget),
        edit_(advice.edit) {
    advised_scale_ = edit_.loss_scale();
    if (original_.plan.storage == kFp32) edit_.set(FixKind::weights_fp32, false);
    if (edit_.loss_scale() && finds_its_scale(edit_, original_.scaler)) edit_.set_loss_scale({});
    const std::string advised = plan_from_json(advice.plan_json).name;
    advised_name_ = advised == original_.plan.name ? advised + "+advice" : advised;
    for (const TriedEdit& tried : search.tried) book_.add(tried);
    if (search.on_trial) book_.on_trial = [this] { search_.on_trial(book_.tried()); };
  }

  std::optional<Proof> run(Proof proof, SearchRequest request) {
    proof.lane = original_.plan.name;
    proof.advised = advised_name_;
    nothing_ = trials_.prepare(original_, proof);
    Outcome original = outcome({}, Trial::Kind::original, proof.lane);
    if (search_.on && original.trial.passes && search_.doubtful) {
      book_.ask_for_half_of(original.trial.gap);
      original.trial.passes = false;
    }
    if (search_.on && nothing_.empty() && !original.trial.passes && !stop_) {
      request.original = original_.plan;
      request.advice = edit_;
      if (!is_static(original_.scaler)) {
        request.loss_scale = advised_scale_;
      }
      find(std::move(request), proof);
    }
    const bool cures = outcome(edit_, Trial::Kind::advised, advised_name_).trial.passes;
    proof.holds = cures && (!original.trial.passes || edit_.members().empty());
    if (proof.holds) drop_needless(proof);
    const Outcome advised = outcome(edit_, Trial::Kind::advised, advised_name_);
    proof.trials = {original.trial, advised.trial};
    if (proof.holds) {
      const std::vector<PlanEdit> members = sorted_members(edit_);
      expect_without(members);
      for (const PlanEdit& member : members) proof.trials.push_back(without(member));
    }
    if (stop_) return std::nullopt;
    if (proof.holds && search_.on) proof.causes = find_causes(book_, edit_);
    proof.edit = edit_;
    proof.plan_json = plan_to_json(book_.lane(edit_, advised_name_).plan);
    proof.tried = book_.tried();
    proof.text = sentence(proof, original, advised);
    return proof;
  }

 private:
  /// Replaces the advice with the smallest edit that a search finds.
  void find(SearchRequest request, Proof& proof) {
    SearchResult result = search(book_, request);
    proof.exhausted = result.exhausted;
    if (!result.cure) return;
    edit_ = *result.cure;
    proof.alternatives = std::move(result.alternatives);
  }

  Outcome outcome(const PlanEdit& edit, Trial::Kind kind, const std::string& name) {
    Outcome result = book_.outcome(edit, name);
    result.trial.passes = result.trial.passes && nothing_.empty();
    result.trial.kind = kind;
    result.trial.name = name;
    return result;
  }

  Trial without(const PlanEdit& member) {
    const std::string name = member.member_name();
    Trial result = outcome(edit_.without(member), Trial::Kind::leave_one_out,
                           advised_name_ + " without " + name)
                       .trial;
    result.without = name;
    return result;
  }

  /// Starts the runs without each of these members ahead of time.
  void expect_without(const std::vector<PlanEdit>& members) {
    std::vector<PlanEdit> rests;
    for (const PlanEdit& member : members) rests.push_back(edit_.without(member));
    book_.expect(rests);
  }

  /// Removes members one by one as long as the rest still cures. A member may only be needed
  /// because of another one, so this repeats until no member can be removed.
  void drop_needless(Proof& proof) {
    for (bool dropped = true; dropped && !stop_;) {
      dropped = false;
      const std::vector<PlanEdit> members = sorted_members(edit_);
      expect_without(members);
      for (const PlanEdit& member : members) {
        if (stop_ || !without(member).passes) continue;
        edit_ = edit_.without(member);
        dropped_.push_back(part_text(member.member_name()));
        proof.dropped.push_back(member.member_name());
        dropped = true;
      }
    }
  }

  std::string sentence(const Proof& proof, const Outcome& original, const Outcome& advised) const {
    if (!nothing_.empty()) return nothing_;
    const std::string allowed = trials_.allowed(proof);
    if (original.trial.passes && edit_.members().empty()) {
      return "The change affects evaluations, not training, so no training loss can show its "
             "effect.";
    }
    if (original.trial.passes) {
      return fmt::format("{}: {} ({}).", trials_.healthy(proof.lane), trials_.distance(original),
                         allowed);
    }
    if (!advised.trial.passes) {
      std::string text =
          fmt::format("Not proved: with the change, {} ({})", trials_.distance(advised), allowed);
      if (!advised.why.empty()) text += "; " + advised.why;
      text += ".";
      if (proof.exhausted)
        text += " The search used up its budget. Run --verify again to continue it.";
      const std::string hint = trials_.hint(advised);
      return hint.empty() ? text : text + " " + hint;
    }
    std::string text =
        fmt::format("{}: with the change, {} ({}). Without it, {}.", trials_.proved(),
                    trials_.distance(advised), allowed, trials_.failure(original, proof));
    std::vector<std::string> names;
    for (const PlanEdit& member : sorted_members(edit_)) names.push_back(in_words(member));
    if (names.size() > 1) {
      text += fmt::format(" Every part is needed. Without any one of these it fails again: {}.",
                          name_list(names));
    }
    if (proof.exhausted) {
      text += " The search used up its budget, so there may be a smaller change.";
    }
    if (!dropped_.empty()) {
      text += fmt::format(" Not needed, so dropped: {}.", name_list(dropped_));
    }
    return text;
  }

  LaneConfig original_;
  TrialRunner& trials_;
  const SearchOptions& search_;
  const std::atomic<bool>& stop_;
  TrialBook book_;
  PlanEdit edit_;  ///< the advice without the members dropped so far
  std::optional<double> advised_scale_;
  std::string advised_name_;
  std::string nothing_;               ///< reason why a proof is impossible
  std::vector<std::string> dropped_;  ///< one sentence per member
};

SearchRequest search_request(const SearchOptions& options) {
  SearchRequest request{.evidence = options.evidence, .lane = options.lane};
  if (options.evidence != nullptr) request.layers = options.evidence->lane(options.lane).layers;
  return request;
}

}  // namespace

std::optional<Proof> prove(const ProofRequest& request, const Dataset& data,
                           const ProofProgress& progress, const std::atomic<bool>& stop) {
  Proof proof;
  proof.steps = request.training.steps;
  proof.seed = request.training.seed;
  const LaneConfig original{
      .plan = request.original, .scaler = request.scaler, .backend = request.backend};
  std::unique_ptr<TrialRunner> trials = training_trials(request, data, progress, stop);
  if (request.share) trials = request.share(std::move(trials));
  SearchRequest wanted = search_request(request.search);
  wanted.trains = true;
  wanted.state_format = request.training.state_format;
  wanted.sum_format =
      request.training.micro_batches > 1 ? request.training.sum_format : std::nullopt;
  wanted.ranks = request.training.ranks;
  wanted.reduction = request.training.reduction;
  return Prover(original, request.advice, *trials, request.search, stop)
      .run(std::move(proof), std::move(wanted));
}

std::optional<Proof> prove(const InferenceProofRequest& request, const Dataset& data,
                           const ProofProgress& progress, const std::atomic<bool>& stop) {
  Proof proof;
  proof.seed = request.run.seed;
  Recommendation advice = request.advice;
  advice.edit.set_loss_scale({});  // there is no loss
  const LaneConfig original{.plan = request.original, .scaler = {}, .backend = request.backend};
  const std::unique_ptr<TrialRunner> trials = inference_trials(request, data, progress, stop);
  return Prover(original, advice, *trials, request.search, stop)
      .run(std::move(proof), search_request(request.search));
}

}  // namespace halfscope
