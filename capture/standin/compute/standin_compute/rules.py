"""How ops are treated. Names are those of ATen's native functions, without the overload unless noted.

All other ops run the CPU kernel of the same name.
"""

# Ops that make or describe tensors, or answer from what the host knows. They are all host code.
MEMORY_ONLY = frozenset("""
    empty empty_strided empty_like new_empty new_empty_strided empty_permuted resize_ resize_as_ set_
    record_stream is_pinned _pin_memory pin_memory as_strided view _reshape_alias unfold is_set_to
    _debug_has_internal_overlap _nested_tensor_size _empty_affine_quantized
    _empty_per_channel_affine_quantized view_as_real view_as_complex _to_copy alias lift lift_fresh detach
    data _fused_sdp_choice _use_cudnn_ctc_loss _use_miopen_ctc_loss _cudnn_init_dropout_state
    _cudnn_rnn_flatten_weight sym_size
    sym_stride sym_numel _assert_tensor_metadata _has_same_storage_numel _storage_offset _efficientzerotensor
    _sparse_coo_tensor_with_dims _lazy_clone
""".split())

# Ops whose host code reads device memory that ops inside it have written: those are computed too. It must do
# no harm that the outer op computes the same again.
READS_INSIDE = frozenset("""
    index index_put_ _index_put_impl_ _unsafe_index _unsafe_index_put masked_select bincount histc
    repeat_interleave multinomial embedding_dense_backward _embedding_bag _embedding_bag_forward_only
    _embedding_bag_dense_backward _ctc_loss _ctc_loss_backward segment_reduce _segment_reduce_backward
    is_nonzero isin masked_fill masked_fill_ index_fill index_fill_ trace _foreach_copy_
""".split())

# Ops whose result has a size that depends on the data, or goes to the host: we synchronise the stream and
# copy the CPU's result. Their temporaries (CUB, Thrust) are not allocated.
SIZED_BY_DATA = frozenset("""
    nonzero _unique _unique2 unique_dim unique_consecutive unique_dim_consecutive equal
""".split())

# Ops that call libraries whose functions do nothing here (cuSOLVER, MAGMA, cuFFT): computed like those above,
# without their host code.
BY_LIBRARY = (
    "linalg_",
    "_linalg_",
    "_fft_",
    "_cholesky",
    "cholesky",
    "geqrf",
    "ormqr",
    "lu_",
    "triangular_solve",
    "_lu_with_info",
)
NOT_BY_LIBRARY = frozenset("linalg_cross linalg_vector_norm linalg_cross_out linalg_vecdot".split())

# Ops that stay in half precision: they move data, or their result depends on the dtype.
NARROW = frozenset("""
    copy_ _foreach_copy_ cat stack index index_select gather scatter scatter_ take fill_ zero_ _foreach_zero_
    masked_fill masked_fill_ masked_select flip roll where nonzero eq ne lt le gt ge eq_ ne_ lt_ le_ gt_ ge_
    maximum minimum fmax fmin nan_to_num nan_to_num_ nextafter nextafter_ frexp isin searchsorted bucketize
    sort topk argsort clamp clamp_ clamp_min clamp_max clamp_min_ clamp_max_ tril tril_ triu triu_ bernoulli_
    normal_ uniform_ random_ exponential_ geometric_ cauchy_ log_normal_ randperm _local_scalar_dense equal
    index_copy index_copy_ index_fill_ masked_scatter masked_scatter_ repeat_interleave signbit isnan isinf
    unique_dim _unique2 unique_consecutive _chunk_cat split_with_sizes_copy
""".split())

_AMD = "it is for AMD's libraries"
_QUANTIZED = "quantized kernels are not modelled"
_CUTLASS = "it is a CUTLASS or Triton kernel without a CPU counterpart"
_VARLEN = "attention of packed sequences is not modelled: use scaled_dot_product_attention"

# Ops that are refused, and why.
REFUSED = {
    "_flash_attention_forward": _VARLEN,
    "_flash_attention_backward": _VARLEN,
    "_efficient_attention_forward": _VARLEN,
    "_efficient_attention_backward": _VARLEN,
    "_cudnn_attention_forward": _VARLEN,
    "_cudnn_attention_backward": _VARLEN,
    "_flash_attention_forward_no_dropout_inplace": _VARLEN,
    "_cudnn_attention_forward_no_dropout_inplace": _VARLEN,
    "_fill_mem_eff_dropout_mask_": "the mask of a real GPU is not known",
    "_grouped_mm": _CUTLASS,
    "_scaled_grouped_mm": _CUTLASS,
    "_scaled_grouped_mm_v2": _CUTLASS,
    "_mixed_dtypes_linear": _CUTLASS,
    "_scaled_addmm": _CUTLASS,
    "_scaled_addmm_": _CUTLASS,
    "_triton_multi_head_attention": _CUTLASS,
    "_triton_scaled_dot_attention": _CUTLASS,
    "_weight_int4pack_mm": _QUANTIZED,
    "_convert_weight_to_int4pack": _QUANTIZED,
}


def refusal(name):
    """Return why an op is refused, or None if it is not."""
    if name in REFUSED:
        return REFUSED[name]
    if name.startswith("miopen_"):
        return _AMD
    if name.startswith(("_sparse_semi_structured", "_cslt_", "_to_sparse_semi_structured")):
        return "semi-structured sparse matrices are not modelled"
    if "quantize" in name:
        return _QUANTIZED
    return None


def by_library(name):
    """Report whether an op calls a library whose functions do nothing here."""
    return name.startswith(BY_LIBRARY) and name not in NOT_BY_LIBRARY
