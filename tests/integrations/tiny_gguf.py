"""A GGUF file of a few kilobytes: a one-layer llama with random weights and a byte-level BPE."""

import numpy as np
from gguf import GGUFWriter
from tokenizers.pre_tokenizers import ByteLevel

DIM, FEED_FORWARD, HEADS, KV_HEADS, HEAD_DIM = 32, 48, 4, 2, 8
CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "2 0"]
TOKENS = [*CONTROL_TOKENS, *sorted(ByteLevel.alphabet()), "th", "the", "20"]
SHAPES = {
    "token_embd": (len(TOKENS), DIM),
    "output_norm": (DIM,),
    "blk.0.attn_norm": (DIM,),
    "blk.0.ffn_norm": (DIM,),
    "blk.0.attn_q": (HEADS * HEAD_DIM, DIM),
    "blk.0.attn_k": (KV_HEADS * HEAD_DIM, DIM),
    "blk.0.attn_v": (KV_HEADS * HEAD_DIM, DIM),
    "blk.0.attn_output": (DIM, HEADS * HEAD_DIM),
    "blk.0.ffn_gate": (FEED_FORWARD, DIM),
    "blk.0.ffn_up": (FEED_FORWARD, DIM),
    "blk.0.ffn_down": (DIM, FEED_FORWARD),
}


def write_tiny_gguf(path, pre_tokenizer="smollm", seed=0):
    """Write the file, with `pre_tokenizer` as the name of its rule for splitting text."""
    writer = GGUFWriter(path, "llama")
    _add_shape(writer)
    _add_tokenizer(writer, pre_tokenizer)
    rng = np.random.default_rng(seed)
    for name, shape in SHAPES.items():
        writer.add_tensor(f"{name}.weight", rng.standard_normal(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer):
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(DIM)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e4)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_vocab_size(len(TOKENS))
    writer.add_file_type(0)


def _add_tokenizer(writer, pre_tokenizer):
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3 if token in CONTROL_TOKENS else 1 for token in TOKENS])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{{ messages[0].content }}")
