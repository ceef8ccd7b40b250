// ExecuTorch's runtime as C functions, for machines without torch: its Python binding needs torch's libraries.
// A function that can fail answers what failed in a word, or null.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;

namespace executorch::extension::threadpool {  // the package has its library, not its header
class ThreadPool {
 public:
  bool _unsafe_reset_threadpool(uint32_t threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

struct Net {
  Module module;
  std::vector<TensorPtr> tensors;  // of memory that the caller keeps
  std::vector<EValue> inputs, outputs;

  explicit Net(const char* file) : module(file, Module::LoadMode::File) {}
};

static const char* said(Error error) {
  return error == Error::Ok ? nullptr : executorch::runtime::to_string(error);
}

extern "C" {

Net* net_new(const char* file, uint32_t threads) {
  executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(threads);
  return new Net(file);
}

void net_delete(Net* net) { delete net; }

const char* net_load(Net* net) {
  const auto error = net->module.load(executorch::runtime::Program::Verification::InternalConsistency);
  return said(error == Error::Ok ? net->module.load_forward() : error);
}

void net_forget_inputs(Net* net) {
  net->inputs.clear();
  net->tensors.clear();
}

void net_add_input(Net* net, void* data, int8_t type, size_t rank, const int32_t* sizes) {
  const std::vector<SizesType> shape(sizes, sizes + rank);
  net->tensors.push_back(executorch::extension::from_blob(data, shape, static_cast<ScalarType>(type)));
  net->inputs.emplace_back(*net->tensors.back());
}

const char* net_run(Net* net) {
  auto found = net->module.forward(net->inputs);
  if (!found.ok()) return said(found.error());
  net->outputs = std::move(found.get());
  return nullptr;
}

// The memory of an output, which the next run writes, or null where that is no tensor; its sizes go into `sizes`, which
// has room for so many.
const void* net_output(Net* net, size_t index, int8_t* type, size_t* rank, int32_t* sizes, size_t room) {
  const EValue& value = net->outputs[index];
  *rank = 0, *type = -1;
  if (!value.isTensor() || static_cast<size_t>(value.toTensor().dim()) > room) return nullptr;
  const auto& tensor = value.toTensor();
  *type = static_cast<int8_t>(tensor.scalar_type());
  *rank = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), sizes);
  return tensor.const_data_ptr();
}
}
