"""Text and chats as the token ids that an engine makes of them.

`chats.py` and `content.py` are what a request has, `chat_template.py` renders it by transformers as
SGLang or vLLM prepares it, `template_files.py` finds a model's template, `openai.py` reads requests,
`fields.py` checks their fields.
"""
