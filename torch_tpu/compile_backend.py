"""The backend name ``tpu`` of ``torch.compile``."""


def tpu(graph, example_inputs, **options):
    raise NotImplementedError(
        'torch.compile(backend="tpu") is not implemented in this version of torch_tpu. Run the model eagerly on the '
        'device tpu, or use torch.compile(backend="aot_eager"), which runs the compiled graph operator by operator.'
    )
