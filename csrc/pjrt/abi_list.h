/* The PJRT C API as lists: what abi.h declares and what abi_test.c compares with the reference header.
 *
 * TT_PJRT_ARGS(A, F): A(name, fields) is the struct PJRT_<name>; every field is F(type, name). All of them start with
 * struct_size and extension_start, which are left out here.
 *
 * TT_PJRT_SLOTS(V, F, O, R): the function table in its order, through API 0.81.
 *   V(name)  required, returns nothing
 *   F(name)  required, returns PJRT_Error *
 *   O(name)  optional, returns PJRT_Error *: test TT_PJRT_HAS before the call
 *   R(name)  not called by us; the place is kept and may be probed
 */
#ifndef TT_PJRT_ABI_LIST_H
#define TT_PJRT_ABI_LIST_H

#define TT_PJRT_ARGS(A, F)                                                                                            \
  A(Error_Destroy_Args, F(PJRT_Error *, error))                                                                       \
  A(Error_Message_Args, F(const PJRT_Error *, error) F(const char *, message) F(size_t, message_size))                \
  A(Error_GetCode_Args, F(const PJRT_Error *, error) F(PJRT_Error_Code, code))                                        \
  A(Plugin_Initialize_Args, )                                                                                         \
  A(Event_Destroy_Args, F(PJRT_Event *, event))                                                                       \
  A(Event_IsReady_Args, F(PJRT_Event *, event) F(bool, is_ready))                                                     \
  A(Event_Await_Args, F(PJRT_Event *, event))                                                                         \
  A(Client_Create_Args, F(const PJRT_NamedValue *, create_options) F(size_t, num_options)                             \
      F(void *, kv_get_callback) F(void *, kv_get_user_arg) F(void *, kv_put_callback) F(void *, kv_put_user_arg)     \
      F(PJRT_Client *, client) F(void *, kv_try_get_callback) F(void *, kv_try_get_user_arg))                         \
  A(Client_Destroy_Args, F(PJRT_Client *, client))                                                                    \
  A(Client_PlatformName_Args, F(PJRT_Client *, client) F(const char *, platform_name) F(size_t, platform_name_size))  \
  A(Client_PlatformVersion_Args, F(PJRT_Client *, client) F(const char *, platform_version)                           \
      F(size_t, platform_version_size))                                                                               \
  A(Client_AddressableDevices_Args, F(PJRT_Client *, client) F(PJRT_Device *const *, addressable_devices)             \
      F(size_t, num_addressable_devices))                                                                             \
  A(Program, F(char *, code) F(size_t, code_size) F(const char *, format) F(size_t, format_size))                     \
  A(Client_Compile_Args, F(PJRT_Client *, client) F(const PJRT_Program *, program) F(const char *, compile_options)   \
      F(size_t, compile_options_size) F(PJRT_LoadedExecutable *, executable))                                         \
  A(Client_BufferFromHostBuffer_Args, F(PJRT_Client *, client) F(const void *, data) F(PJRT_Buffer_Type, type)        \
      F(const int64_t *, dims) F(size_t, num_dims) F(const int64_t *, byte_strides) F(size_t, num_byte_strides)       \
      F(PJRT_HostBufferSemantics, host_buffer_semantics) F(PJRT_Device *, device) F(PJRT_Memory *, memory)            \
      F(PJRT_Buffer_MemoryLayout *, device_layout) F(PJRT_Event *, done_with_host_buffer) F(PJRT_Buffer *, buffer))   \
  A(DeviceDescription_Kind_Args, F(PJRT_DeviceDescription *, device_description) F(const char *, device_kind)         \
      F(size_t, device_kind_size))                                                                                    \
  A(Device_GetDescription_Args, F(PJRT_Device *, device) F(PJRT_DeviceDescription *, device_description))             \
  A(Device_MemoryStats_Args, F(PJRT_Device *, device) F(int64_t, bytes_in_use)                                        \
      F(int64_t, peak_bytes_in_use) F(bool, peak_bytes_in_use_is_set) F(int64_t, num_allocs)                          \
      F(bool, num_allocs_is_set) F(int64_t, largest_alloc_size) F(bool, largest_alloc_size_is_set)                    \
      F(int64_t, bytes_limit) F(bool, bytes_limit_is_set) F(int64_t, bytes_reserved) F(bool, bytes_reserved_is_set)   \
      F(int64_t, peak_bytes_reserved) F(bool, peak_bytes_reserved_is_set) F(int64_t, bytes_reservable_limit)          \
      F(bool, bytes_reservable_limit_is_set) F(int64_t, largest_free_block_bytes)                                     \
      F(bool, largest_free_block_bytes_is_set) F(int64_t, pool_bytes) F(bool, pool_bytes_is_set)                      \
      F(int64_t, peak_pool_bytes) F(bool, peak_pool_bytes_is_set))                                                    \
  A(Executable_Destroy_Args, F(PJRT_Executable *, executable))                                                        \
  A(Executable_NumOutputs_Args, F(PJRT_Executable *, executable) F(size_t, num_outputs))                              \
  A(Executable_Serialize_Args, F(const PJRT_Executable *, executable) F(const char *, serialized_bytes)               \
      F(size_t, serialized_bytes_size) F(PJRT_SerializedExecutable *, serialized_executable)                          \
      F(PJRT_SerializedExecutable_Deleter, serialized_executable_deleter))                                            \
  A(Executable_DeserializeAndLoad_Args, F(PJRT_Client *, client) F(const char *, serialized_executable)               \
      F(size_t, serialized_executable_size) F(PJRT_LoadedExecutable *, loaded_executable)                             \
      F(const char *, overridden_serialized_compile_options) F(size_t, overridden_serialized_compile_options_size))   \
  A(DeviceDescription_Attributes_Args, F(PJRT_DeviceDescription *, device_description) F(size_t, num_attributes)     \
      F(const PJRT_NamedValue *, attributes))                                                                         \
  A(TopologyDescription_Create_Args, F(const char *, topology_name) F(size_t, topology_name_size)                     \
      F(const PJRT_NamedValue *, create_options) F(size_t, num_options) F(PJRT_TopologyDescription *, topology))      \
  A(TopologyDescription_Destroy_Args, F(PJRT_TopologyDescription *, topology))                                        \
  A(Client_TopologyDescription_Args, F(PJRT_Client *, client) F(PJRT_TopologyDescription *, topology))                 \
  A(TopologyDescription_PlatformName_Args, F(const PJRT_TopologyDescription *, topology)                              \
      F(const char *, platform_name) F(size_t, platform_name_size))                                                   \
  A(TopologyDescription_PlatformVersion_Args, F(PJRT_TopologyDescription *, topology)                                 \
      F(const char *, platform_version) F(size_t, platform_version_size))                                             \
  A(TopologyDescription_GetDeviceDescriptions_Args, F(const PJRT_TopologyDescription *, topology)                     \
      F(PJRT_DeviceDescription *const *, descriptions) F(size_t, num_descriptions))                                   \
  A(Compile_Args, F(const PJRT_TopologyDescription *, topology) F(const PJRT_Program *, program)                      \
      F(const char *, compile_options) F(size_t, compile_options_size) F(PJRT_Client *, client)                       \
      F(PJRT_Executable *, executable))                                                                               \
  A(Executable_GetCostAnalysis_Args, F(PJRT_Executable *, executable) F(size_t, num_properties)                       \
      F(const PJRT_NamedValue *, properties))                                                                         \
  A(Executable_GetCompiledMemoryStats_Args, F(PJRT_Executable *, executable) F(int64_t, generated_code_size_in_bytes) \
      F(int64_t, argument_size_in_bytes) F(int64_t, output_size_in_bytes) F(int64_t, alias_size_in_bytes)             \
      F(int64_t, temp_size_in_bytes) F(int64_t, host_generated_code_size_in_bytes)                                    \
      F(int64_t, host_argument_size_in_bytes) F(int64_t, host_output_size_in_bytes)                                   \
      F(int64_t, host_alias_size_in_bytes) F(int64_t, host_temp_size_in_bytes) F(int64_t, peak_memory_in_bytes))      \
  A(Executable_OptimizedProgram_Args, F(PJRT_Executable *, executable) F(PJRT_Program *, program))                    \
  A(Executable_Fingerprint_Args, F(PJRT_Executable *, executable) F(const char *, executable_fingerprint)             \
      F(size_t, executable_fingerprint_size))                                                                         \
  A(LoadedExecutable_Destroy_Args, F(PJRT_LoadedExecutable *, executable))                                            \
  A(LoadedExecutable_GetExecutable_Args, F(PJRT_LoadedExecutable *, loaded_executable)                                \
      F(PJRT_Executable *, executable))                                                                               \
  A(ExecuteOptions, F(void *, send_callbacks) F(void *, recv_callbacks) F(size_t, num_send_ops)                       \
      F(size_t, num_recv_ops) F(int, launch_id) F(const int64_t *, non_donatable_input_indices)                       \
      F(size_t, num_non_donatable_input_indices) F(void *, context) F(const char *, call_location)                    \
      F(size_t, num_tasks) F(int *, task_ids) F(int64_t *, incarnation_ids))                                          \
  A(LoadedExecutable_Execute_Args, F(PJRT_LoadedExecutable *, executable) F(PJRT_ExecuteOptions *, options)           \
      F(PJRT_Buffer *const *const *, argument_lists) F(size_t, num_devices) F(size_t, num_args)                       \
      F(PJRT_Buffer **const *, output_lists) F(PJRT_Event **, device_complete_events)                                 \
      F(PJRT_Device *, execute_device))                                                                               \
  A(Buffer_Destroy_Args, F(PJRT_Buffer *, buffer))                                                                    \
  A(Buffer_ElementType_Args, F(PJRT_Buffer *, buffer) F(PJRT_Buffer_Type, type))                                      \
  A(Buffer_Dimensions_Args, F(PJRT_Buffer *, buffer) F(const int64_t *, dims) F(size_t, num_dims))                    \
  A(Buffer_GetMemoryLayout_Args, F(PJRT_Buffer *, buffer) F(PJRT_Buffer_MemoryLayout, layout))                        \
  A(Buffer_OnDeviceSizeInBytes_Args, F(PJRT_Buffer *, buffer) F(size_t, on_device_size_in_bytes))                     \
  A(Buffer_IsDeleted_Args, F(PJRT_Buffer *, buffer) F(bool, is_deleted))                                              \
  A(Buffer_ToHostBuffer_Args, F(PJRT_Buffer *, src) F(PJRT_Buffer_MemoryLayout *, host_layout) F(void *, dst)         \
      F(size_t, dst_size) F(PJRT_Event *, event))                                                                     \
  A(Buffer_ReadyEvent_Args, F(PJRT_Buffer *, buffer) F(PJRT_Event *, event))                                          \
  A(Buffer_UnsafePointer_Args, F(PJRT_Buffer *, buffer) F(uintptr_t, buffer_pointer))                                 \
  A(Buffer_IncreaseExternalReferenceCount_Args, F(PJRT_Buffer *, buffer))                                             \
  A(Buffer_DecreaseExternalReferenceCount_Args, F(PJRT_Buffer *, buffer))

#define TT_PJRT_SLOTS(V, F, O, R)                                                                                     \
  V(Error_Destroy) V(Error_Message) F(Error_GetCode) F(Plugin_Initialize) R(Plugin_Attributes)                        \
  F(Event_Destroy) F(Event_IsReady) R(Event_Error) F(Event_Await) R(Event_OnReady)                                    \
  F(Client_Create) F(Client_Destroy) F(Client_PlatformName) R(Client_ProcessIndex) F(Client_PlatformVersion)          \
  R(Client_Devices) F(Client_AddressableDevices) R(Client_LookupDevice) R(Client_LookupAddressableDevice)             \
  R(Client_AddressableMemories) F(Client_Compile) R(Client_DefaultDeviceAssignment) F(Client_BufferFromHostBuffer)    \
  R(DeviceDescription_Id) R(DeviceDescription_ProcessIndex) O(DeviceDescription_Attributes)                           \
  F(DeviceDescription_Kind) R(DeviceDescription_DebugString) R(DeviceDescription_ToString)                            \
  F(Device_GetDescription) R(Device_IsAddressable) R(Device_LocalHardwareId) R(Device_AddressableMemories)            \
  R(Device_DefaultMemory) O(Device_MemoryStats)                                                                       \
  R(Memory_Id) R(Memory_Kind) R(Memory_DebugString) R(Memory_ToString) R(Memory_AddressableByDevices)                 \
  F(Executable_Destroy) R(Executable_Name) R(Executable_NumReplicas) R(Executable_NumPartitions)                      \
  F(Executable_NumOutputs) R(Executable_SizeOfGeneratedCodeInBytes) O(Executable_GetCostAnalysis)                     \
  R(Executable_OutputMemoryKinds) O(Executable_OptimizedProgram) O(Executable_Serialize)                              \
  F(LoadedExecutable_Destroy) F(LoadedExecutable_GetExecutable) R(LoadedExecutable_AddressableDevices)                \
  R(LoadedExecutable_Delete) R(LoadedExecutable_IsDeleted) F(LoadedExecutable_Execute)                                \
  O(Executable_DeserializeAndLoad) R(LoadedExecutable_Fingerprint)                                                    \
  F(Buffer_Destroy) F(Buffer_ElementType) F(Buffer_Dimensions) R(Buffer_UnpaddedDimensions)                           \
  R(Buffer_DynamicDimensionIndices) O(Buffer_GetMemoryLayout) F(Buffer_OnDeviceSizeInBytes) R(Buffer_Device)          \
  R(Buffer_Memory) R(Buffer_Delete) F(Buffer_IsDeleted) R(Buffer_CopyToDevice) F(Buffer_ToHostBuffer)                 \
  R(Buffer_IsOnCpu) F(Buffer_ReadyEvent) O(Buffer_UnsafePointer) O(Buffer_IncreaseExternalReferenceCount)             \
  O(Buffer_DecreaseExternalReferenceCount) R(Buffer_OpaqueDeviceMemoryDataPointer)                                    \
  R(CopyToDeviceStream_Destroy) R(CopyToDeviceStream_AddChunk) R(CopyToDeviceStream_TotalBytes)                       \
  R(CopyToDeviceStream_GranuleSize) R(CopyToDeviceStream_CurrentBytes)                                                \
  O(TopologyDescription_Create) O(TopologyDescription_Destroy) O(TopologyDescription_PlatformName)                    \
  O(TopologyDescription_PlatformVersion) O(TopologyDescription_GetDeviceDescriptions)                                 \
  R(TopologyDescription_Serialize) R(TopologyDescription_Attributes) O(Compile)                                       \
  R(Executable_OutputElementTypes) R(Executable_OutputDimensions) R(Buffer_CopyToMemory)                              \
  R(Client_CreateViewOfDeviceBuffer) O(Executable_Fingerprint) O(Client_TopologyDescription)                          \
  O(Executable_GetCompiledMemoryStats) R(Memory_Kind_Id) R(ExecuteContext_Create) R(ExecuteContext_Destroy)           \
  R(Buffer_CopyRawToHost) R(AsyncHostToDeviceTransferManager_Destroy)                                                 \
  R(AsyncHostToDeviceTransferManager_TransferData) R(Client_CreateBuffersForAsyncHostToDevice)                        \
  R(AsyncHostToDeviceTransferManager_RetrieveBuffer) R(AsyncHostToDeviceTransferManager_Device)                       \
  R(AsyncHostToDeviceTransferManager_BufferCount) R(AsyncHostToDeviceTransferManager_BufferSize)                      \
  R(AsyncHostToDeviceTransferManager_SetBufferError) R(AsyncHostToDeviceTransferManager_AddMetadata)                  \
  R(Client_DmaMap) R(Client_DmaUnmap) R(Client_CreateUninitializedBuffer) R(Client_UpdateGlobalProcessInfo)           \
  R(TopologyDescription_Deserialize) R(Client_CreateAliasBuffer) R(Client_FulfillAliasBuffer)                         \
  R(LoadedExecutable_GetDeviceAssignment)

#endif
