"""Text and chats as the token ids that an engine makes of them.

`model.py` does it for one model. `chats.py` and `content.py` are what a request has, `openai.py`
reads it, `chat_template.py` renders it by transformers as SGLang or vLLM prepares it,
`template_files.py` finds a model's template, `gguf.py` the tokenizer of a GGUF file, `fields.py`
checks fields.
"""

from radixkv.prompts.model import ModelPrompts

__all__ = ["ModelPrompts"]
