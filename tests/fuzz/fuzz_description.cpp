// The description that a store keeps of its model, as a resuming engine reads it.

#include <exception>

#include "engine/layout.hpp"
#include "fuzz/fuzz.hpp"

namespace penstock::fuzz {
namespace {

struct Known {
  ModelSpec model;
  Layout layout;
};

const Known& known() {
  static const Known known = [] {
    Known made;
    made.model.groups = {"a"};
    TensorSpec tensor;
    tensor.name = "w";
    tensor.shape = {4, 8};
    made.model.tensors.push_back(tensor);
    auto layout = Layout::make(made.model);
    must(layout.ok(), "layout");
    made.layout = std::move(layout).value();
    return made;
  }();
  return known;
}

}  // namespace
}  // namespace penstock::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using penstock::fuzz::must_be_said;
  const std::string_view text = penstock::fuzz::text_of(data, bytes);
  const auto& known = penstock::fuzz::known();
  try {
    const auto block = penstock::block_elements_of(text, "here");
    if (!block) must_be_said(block.error());
    penstock::StoreGeometry stored;
    stored.description = text;
    const auto same = penstock::compare_model(stored, "here", known.model, known.layout);
    if (!same) must_be_said(same.error());
    const auto trained =
        penstock::compare_trainer(text, "here", R"({"batch": 8, "model": {"layers": 2}})");
    if (!trained) must_be_said(trained.error());
  } catch (const std::exception&) {
    // The JSON library's, of a value of another type; make_engine() turns it into kCorrupt.
  }
  return 0;
}
