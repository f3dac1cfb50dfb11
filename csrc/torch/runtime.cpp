// What PyTorch asks of an accelerator: hooks, the device guard with streams and events, memory statistics.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>

#include "torch/device.h"
#include "torch/generator.h"

namespace tt {
namespace {

// ---- streams: names only, since there is one in-order queue --------------------------------------------------------

std::atomic<c10::StreamId> next_stream{1};
thread_local c10::StreamId current_stream = 0;

c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device0(), id); }

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Event {
  uint64_t point = 0;  // everything submitted until then is what the event stands for
  double time_ms = 0;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device d) const override {
    check_index(d);
    return device0();
  }
  c10::Device getDevice() const override { return device0(); }
  void setDevice(c10::Device d) const override { check_index(d); }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return stream(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(next_stream++); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(next_stream++); }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const auto old = current_stream;
    current_stream = s.id();
    return stream(old);
  }
  bool queryStream(const c10::Stream&) const override {
    tt_device* d = device_if_open();
    if (!d) return true;
    check(tt_device_flush(d, TT_FLUSH_EVENT));
    return tt_device_finished(d, tt_device_submitted(d));
  }
  void synchronizeStream(const c10::Stream&) const override { synchronizeDevice(0); }
  void synchronizeDevice(c10::DeviceIndex) const override {
    if (tt_device* d = device_if_open()) check(tt_device_synchronize(d));
  }

  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag flag) const override {
    if (!*event) *event = new Event();
    auto* e = static_cast<Event*>(*event);
    if (tt_device* d = device_if_open()) {
      check(tt_device_flush(d, TT_FLUSH_EVENT));
      e->point = tt_device_submitted(d);
      // A time is that of the work before the event being done.
      if (flag == c10::EventFlag::BACKEND_DEFAULT) check(tt_device_wait(d, e->point));
    }
    e->time_ms = now_ms();
  }
  void block(void*, const c10::Stream&) const override {}  // one queue: what comes later waits anyway
  bool queryEvent(void* event) const override {
    const tt_device* d = device_if_open();
    return !event || !d || tt_device_finished(d, static_cast<Event*>(event)->point);
  }
  void synchronizeEvent(void* event) const override {
    tt_device* d = device_if_open();
    if (event && d) check(tt_device_wait(d, static_cast<Event*>(event)->point));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    TORCH_CHECK(first && second, "Both events must be recorded before calculating elapsed time.");
    return static_cast<Event*>(second)->time_ms - static_cast<Event*>(first)->time_ms;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// ---- hooks: counting and asking never load the plugin ------------------------------------------------------------

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return device_if_open() != nullptr; }
  void init() const override { device(); }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex i) const override { check_index({kType, i}); }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex i) const override {
    check_index({kType, i});
    return 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return new_generator(); }
  at::Device getDeviceFromPtr(void*) const override { return device0(); }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::DeviceType::CPU); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override { resize_storage(storage, nbytes); }
};

}  // namespace

void register_hooks() {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(kType, allocator());
}

}  // namespace tt
