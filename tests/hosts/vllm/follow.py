"""One engine of vLLM's on the CPU that publishes, and what our router knows of it:
python follow.py FOLDER ADAPTER BLOCK_SIZE PORT REPLAY_PORT OUT
"""

import json
import sys
from pathlib import Path

from tests.hosts import following

NUM_SLOTS, LONGEST = 480, 256


def main(folder, adapter, block_size, port, replay_port, out):
    from vllm import LLM, SamplingParams
    from vllm.config import KVEventsConfig
    from vllm.inputs import TokensPrompt
    from vllm.lora.request import LoRARequest

    block_size = int(block_size)
    engine = LLM(
        folder,
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        max_num_seqs=1,
        max_model_len=LONGEST,
        block_size=block_size,
        num_gpu_blocks_override=NUM_SLOTS // block_size,
        kv_cache_memory_bytes=200 << 20,
        enable_prefix_caching=True,
        enable_lora=True,
        max_loras=1,
        max_lora_rank=8,
        kv_events_config=KVEventsConfig(
            enable_kv_cache_events=True,
            publisher="zmq",
            endpoint=f"tcp://*:{port}",
            replay_endpoint=f"tcp://*:{replay_port}",
        ),
    )
    how = SamplingParams(max_tokens=1, temperature=0, ignore_eos=True, detokenize=False)

    def ask(prompt):
        tokens = TokensPrompt(prompt_token_ids=prompt.ids)
        if prompt.salt is not None:
            tokens["cache_salt"] = prompt.salt
        lora = prompt.adapter and LoRARequest(prompt.adapter, 1, adapter)
        (answer,) = engine.generate([tokens], how, lora_request=lora, use_tqdm=False)
        return answer.num_cached_tokens

    endpoint, replay = (f"tcp://127.0.0.1:{each}" for each in (port, replay_port))
    found = following.Follow(ask, endpoint, replay, block_size).run()
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
