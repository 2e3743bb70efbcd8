// A session before it is open: groups, tensors, order, plan, and opening.

#include <algorithm>

#include "base/clock.hpp"
#include "capi/session.hpp"
#include "capi/versioned.hpp"
#include "engine/layout.hpp"
#include "engine/system_drives.hpp"
#include "engine/tuned_queue.hpp"
#include "io/counting_storage.hpp"
#include "topo/topology.hpp"

namespace penstock::capi {
namespace {

constexpr unsigned kIndexBits = 28;  // a number is {session, kind (4 bits), index + 1 (28 bits)}
constexpr std::uint64_t kGroupKind = 1, kTensorKind = 2;
constexpr std::size_t kMostIndices = (std::size_t{1} << kIndexBits) - 2;
constexpr std::size_t kLongestName = 255;
/// Tables of blocks grow with the elements; beyond this a plan alone would fill a machine.
constexpr std::uint64_t kMostModelElements = std::uint64_t{1} << 40;

Result<std::string> checked_name(const char* name, const char* what) {
  if (name == nullptr || *name == '\0')
    return argument(fmt::format("the {}'s name is empty", what));
  std::string text(name);
  if (text.size() > kLongestName) {
    return argument(
        fmt::format("the {}'s name has {} bytes; at most {}", what, text.size(), kLongestName));
  }
  return text;
}

Error bad_tensor(const std::string& name, const std::string& why) {
  return argument(fmt::format("tensor \"{}\": {}", name, why));
}

Result<std::uint64_t> count_elements(const penstock_tensor_desc& desc, const std::string& name) {
  if (desc.rank < 1 || desc.rank > 8) {
    return bad_tensor(name, fmt::format("rank is {}; it is 1 to 8", desc.rank));
  }
  std::uint64_t elements = 1;
  for (int i = 0; i < desc.rank; ++i) {
    if (desc.shape[i] < 1) {
      return bad_tensor(name,
                        fmt::format("dimension {} is {}; it is at least 1", i, desc.shape[i]));
    }
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(desc.shape[i]), &elements) ||
        elements > kMostModelElements) {
      return bad_tensor(name, "more than 2^40 elements");
    }
  }
  return elements;
}

Result<Init> init_of(const penstock_tensor_desc& desc, const std::string& name) {
  Init init;
  init.constant = desc.init_constant;
  init.deviation = desc.init_deviation;
  switch (desc.init) {
    case PENSTOCK_INIT_ZEROS:
      break;
    case PENSTOCK_INIT_CONSTANT:
      init.kind = Init::Kind::kConstant;
      break;
    case PENSTOCK_INIT_NORMAL:
      init.kind = Init::Kind::kNormal;
      break;
    case PENSTOCK_INIT_VALUES:
      if (desc.values == nullptr) return bad_tensor(name, "init needs the values callback");
      init.kind = Init::Kind::kValues;
      init.values = [values = desc.values, user = desc.values_user](
                        std::uint64_t first, std::uint64_t count, float* out) {
        const CallbackScope scope;
        values(user, first, count, out);
      };
      break;
    case PENSTOCK_INIT_FROM_WEIGHTS:
      if (desc.weights == nullptr) return bad_tensor(name, "init needs the weights array");
      init.kind = Init::Kind::kWeights;
      break;
    default:
      return bad_tensor(name, fmt::format("init is {}; see penstock_init", desc.init));
  }
  return init;
}

std::uint64_t bytes_of(const TensorSpec& tensor) {
  std::uint64_t elements = 1;
  for (const std::int64_t n : tensor.shape) elements *= static_cast<std::uint64_t>(n);
  return elements * (tensor.weight_type == WeightType::kF32 ? 4 : 2);
}

/// Updates of two tensors run at the same time: their arrays must not share a byte.
Status check_apart(const ModelSpec& model) {
  std::vector<const TensorSpec*> with_weights;
  for (const TensorSpec& tensor : model.tensors) {
    if (tensor.weights != nullptr) with_weights.push_back(&tensor);
  }
  const auto begin = [](const TensorSpec* t) {
    return reinterpret_cast<std::uintptr_t>(t->weights);
  };
  std::sort(with_weights.begin(), with_weights.end(),
            [&](const TensorSpec* a, const TensorSpec* b) { return begin(a) < begin(b); });
  for (std::size_t i = 1; i < with_weights.size(); ++i) {
    const TensorSpec *a = with_weights[i - 1], *b = with_weights[i];
    if (begin(a) + bytes_of(*a) > begin(b)) {
      return argument(
          fmt::format("the weights of tensors \"{}\" and \"{}\" overlap; a tied tensor "
                      "is registered once, with several contributions",
                      a->name, b->name));
    }
  }
  return ok();
}

}  // namespace

Session::Session(std::uint64_t number, SessionOptions options)
    : number_(number), options_(std::move(options)) {
  model_.level = options_.level;
}

// --- numbers ---------------------------------------------------------------------------------

std::uint64_t Session::number_of(std::uint64_t kind, std::size_t index) const {
  return number_ << 32 | kind << kIndexBits | (index + 1);
}

Result<std::uint32_t> Session::index_of(std::uint64_t number, std::uint64_t kind,
                                        std::size_t count) const {
  const char* what = kind == kGroupKind ? "group" : "tensor";
  if (number == 0) return argument(fmt::format("the {} is 0; register or find it first", what));
  if (number >> 32 != (number_ & 0xffffffffU)) {
    return argument(fmt::format("the {} was registered with another engine", what));
  }
  const std::uint64_t index = number & ((std::uint64_t{1} << kIndexBits) - 1);
  if ((number >> kIndexBits & 0xf) != kind || index == 0 || index > count) {
    return argument(fmt::format("{:#x} is not a {} of this engine", number, what));
  }
  return static_cast<std::uint32_t>(index - 1);
}

Result<GroupId> Session::group_of(penstock_group group) const {
  return index_of(group, kGroupKind, model_.groups.size());
}
Result<TensorId> Session::tensor_of(penstock_tensor tensor) const {
  return index_of(tensor, kTensorKind, model_.tensors.size());
}

Result<penstock_group> Session::find_group(const char* name) const {
  if (name == nullptr) return argument("the name is NULL");
  const auto found = groups_.find(name);
  if (found == groups_.end()) return argument(fmt::format("there is no group \"{}\"", name));
  return found->second;
}
Result<penstock_tensor> Session::find_tensor(const char* name) const {
  if (name == nullptr) return argument("the name is NULL");
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return argument(fmt::format("there is no tensor \"{}\"", name));
  return found->second;
}

// --- registering -----------------------------------------------------------------------------

Status Session::set_budget(penstock_tier tier, std::uint64_t bytes) {
  switch (tier) {
    case PENSTOCK_TIER_HOST:
      options_.engine.host_bytes = bytes;
      return ok();
    case PENSTOCK_TIER_DEVICE:
      if (bytes == 0) return ok();
      return make_error(Errc::kUnsupported, "this version has no device tier; its budget stays 0");
    case PENSTOCK_TIER_NVME:
      return make_error(Errc::kUnsupported,
                        "the nvme tier has no budget: a store takes what its plan needs");
    default:
      return argument(fmt::format("tier is {}; see penstock_tier", tier));
  }
}

Result<penstock_group> Session::add_group(const char* name) {
  PENSTOCK_TAKE(text, checked_name(name, "group"));
  if (model_.groups.size() >= kMostIndices) return argument("there are too many groups");
  const penstock_group number = number_of(kGroupKind, model_.groups.size());
  if (!groups_.emplace(text, number).second) {
    return argument(fmt::format("there is already a group \"{}\"", text));
  }
  model_.groups.push_back(std::move(text));
  return number;
}

Status Session::fill_weights(const penstock_tensor_desc& desc, TensorSpec& tensor) {
  const auto bad = [&](const char* why) { return bad_tensor(tensor.name, why); };
  switch (desc.weights_dtype) {
    case PENSTOCK_DTYPE_NONE:
      break;
    case PENSTOCK_F32:
      tensor.weight_type = WeightType::kF32;
      break;
    case PENSTOCK_F16:
      tensor.weight_type = WeightType::kF16;
      break;
    case PENSTOCK_BF16:
      tensor.weight_type = WeightType::kBf16;
      break;
    default:
      return bad("weights_dtype is not one of penstock_dtype");
  }
  if ((desc.weights == nullptr) != (tensor.weight_type == WeightType::kNone)) {
    return bad("weights and weights_dtype come together or not at all");
  }
  if (desc.lent != 0 && desc.lent != 1) return bad("lent is 0 or 1");
  tensor.weights = desc.weights;
  tensor.lent = desc.lent != 0;
  const std::uintptr_t element = tensor.weight_type == WeightType::kF32 ? 4 : 2;
  if (reinterpret_cast<std::uintptr_t>(desc.weights) % element != 0) {
    return bad("the weights are not aligned to their elements");
  }
  if (tensor.lent && (model_.level != Level::kStates || tensor.weight_type != WeightType::kBf16)) {
    return bad("only bf16 weights at level 1 can be lent");
  }
  if (model_.level == Level::kWeights && desc.weights != nullptr &&
      desc.init != PENSTOCK_INIT_FROM_WEIGHTS) {
    return bad(
        "at level 2 the engine holds the weights; an array only serves "
        "PENSTOCK_INIT_FROM_WEIGHTS");
  }
  return ok();
}

Result<penstock_tensor> Session::add_tensor(const penstock_tensor_desc& desc) {
  TensorSpec tensor;
  PENSTOCK_TAKE(name, checked_name(desc.name, "tensor"));
  tensor.name = std::move(name);
  PENSTOCK_TRY(group, group_of(desc.group), fmt::format("tensor \"{}\"", tensor.name));
  PENSTOCK_TAKE(elements, count_elements(desc, tensor.name));
  if (elements_ + elements > kMostModelElements) {
    return bad_tensor(tensor.name, "with it the model has more than 2^40 elements");
  }
  PENSTOCK_TAKE(init, init_of(desc, tensor.name));
  PENSTOCK_CHECK_OK(fill_weights(desc, tensor));
  const auto is_flag = [](std::int32_t value) { return value == 0 || value == 1; };
  if (!is_flag(desc.trainable) || !is_flag(desc.decay)) {
    return bad_tensor(tensor.name, "trainable and decay are 0 or 1");
  }
  if (desc.contributions < 1) return bad_tensor(tensor.name, "contributions is at least 1");
  if (model_.tensors.size() >= kMostIndices) return argument("there are too many tensors");
  tensor.shape.assign(desc.shape, desc.shape + desc.rank);
  tensor.group = group;
  tensor.trainable = desc.trainable != 0;
  tensor.decay = desc.decay != 0;
  tensor.contributions = desc.contributions;
  tensor.init = std::move(init);
  // All of a group are alike, so one of them, most often the last registered, tells.
  const auto other = std::find_if(model_.tensors.rbegin(), model_.tensors.rend(),
                                  [&](const TensorSpec& t) { return t.group == group; });
  if (other != model_.tensors.rend()) {
    if (other->trainable != tensor.trainable || other->lent != tensor.lent) {
      return bad_tensor(tensor.name,
                        fmt::format("group \"{}\" holds tensors of the other kind: frozen and "
                                    "trainable, lent and other tensors, do not share a group",
                                    model_.groups[group]));
    }
  }
  const penstock_tensor number = number_of(kTensorKind, model_.tensors.size());
  if (!tensors_.emplace(tensor.name, number).second) {
    return bad_tensor(tensor.name, "there is already a tensor of that name");
  }
  model_.tensors.push_back(std::move(tensor));
  elements_ += elements;
  return number;
}

Status Session::set_order(std::span<const penstock_group> forward,
                          std::span<const penstock_group> backward) {
  if (model_.level == Level::kStates && !backward.empty()) {
    return argument("at level 1 there is no backward order; pass a count of 0");
  }
  std::vector<GroupId> orders[2];
  std::size_t i = 0;
  for (const auto& given : {forward, backward}) {
    for (const penstock_group number : given) {
      PENSTOCK_TAKE(group, group_of(number));
      orders[i].push_back(group);
    }
    ++i;
  }
  model_.forward = std::move(orders[0]);
  model_.backward = std::move(orders[1]);
  return ok();
}

// --- plan and open ---------------------------------------------------------------------------

Status Session::check_model() const {
  if (model_.tensors.empty()) return wrong_state("no tensor is registered");
  std::vector<bool> has_tensor(model_.groups.size());
  for (const TensorSpec& tensor : model_.tensors) has_tensor[tensor.group] = true;
  for (GroupId g = 0; g < model_.groups.size(); ++g) {
    if (!has_tensor[g]) {
      return wrong_state(fmt::format("group \"{}\" has no tensor; register one or leave it out",
                                     model_.groups[g]));
    }
  }
  return check_apart(model_);
}

Result<std::uint64_t> Session::minimum_bytes() {
  if (engine_ != nullptr) return engine_->plan().minimum_bytes;
  PENSTOCK_CHECK_OK(check_model());
  return minimum_host_bytes(options_.engine, model_);
}

Result<Plan> Session::plan() {
  if (engine_ != nullptr) return engine_->plan();
  PENSTOCK_CHECK_OK(check_model());
  PENSTOCK_TAKE(layout, Layout::make(model_));
  return make_plan(make_plan_request(options_.engine, model_, layout));
}

Status Session::open() {
  PENSTOCK_CHECK_OK(check_model());
  if (options_.threads == 0) {
    PENSTOCK_TRY(topology, read_topology(), "choosing threads (or set the option)");
    options_.threads = static_cast<std::uint32_t>(topology.usable_threads);
  }
  storage_ = std::make_unique<CountingStorage>(make_posix_storage(system_drive_namer()));
  const std::vector<std::string> directories = store_directories(options_.engine).all();
  options_.engine.queue.nodes = system_io_nodes(directories);
  (void)tune_queue(options_.engine.queue, directories, profile_place(), options_.logger);
  executor_ = make_tbb_executor(static_cast<int>(options_.threads));
  if (executor_ == nullptr) {
    return make_error(Errc::kNoMemory, "the system refuses another thread; ask for fewer");
  }
  communicators_ = make_in_process_group(1);
  const EngineParts parts{*storage_, *executor_, *communicators_.front(), [] { return now_ns(); },
                          options_.logger};
  PENSTOCK_TAKE(engine, make_engine(parts, options_.engine, model_));
  engine_ = std::move(engine);
  leases_.reserve(model_.groups.size());
  facts_.store(engine_.get(), std::memory_order_release);
  return ok();
}

}  // namespace penstock::capi
