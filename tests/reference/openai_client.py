"""The official `openai` client against `worldloom serve`: whole, streamed, n=4, log-probs, stop, errors, token ids.

    pip install openai
    python tests/reference/openai_client.py --model runs/quickstart/export-…
"""
from served import arguments, server

SYSTEM = (
    "You are a bash terminal. Files, variables and the directory stay as the commands leave them.\n"
    "The input is one command line. The output is only what bash prints. A failed command prints bash's own error."
)
TURN = "### Turn 1\n\n**Action:**\n```bash\necho fig\n```"
ASK = "\n\nThink first, then write the output between <predicted_observation> and </predicted_observation>."


def main():
    args = arguments(__doc__, ["openai"])
    import openai

    with server(args.worldloom, args.model) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        assert [model.id for model in client.models.list()] == ["worldloom"]
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TURN + ASK}]
        ask = dict(model="worldloom", messages=messages, max_tokens=200, seed=7)

        whole = client.chat.completions.create(**ask, temperature=0)
        message = whole.choices[0].message
        print("thinking:", repr(getattr(message, "reasoning_content", None)))
        print("content: ", repr(message.content), whole.choices[0].finish_reason, whole.usage.completion_tokens)

        text, thought, usage = "", "", None
        stream_options = {"include_usage": True}
        for chunk in client.chat.completions.create(**ask, temperature=0, stream=True, stream_options=stream_options):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                thought += getattr(choice.delta, "reasoning_content", None) or ""
        assert text == message.content, (text, message.content)
        assert thought == (getattr(message, "reasoning_content", None) or "")
        assert usage == whole.usage
        print("a stream adds up to the whole answer")

        four = client.chat.completions.create(**ask, n=4, temperature=1.0)
        again = client.chat.completions.create(**ask, n=4, temperature=1.0)
        texts = [choice.message.content for choice in four.choices]
        assert len(texts) == 4 and texts == [choice.message.content for choice in again.choices]
        print("n=4:", texts)

        scored = client.chat.completions.create(**ask, temperature=0, logprobs=True, top_logprobs=3)
        entries = scored.choices[0].logprobs.content
        assert all(len(entry.top_logprobs) == 3 and entry.top_logprobs[0].logprob == entry.logprob for entry in entries)
        print("log-probs of", len(entries), "tokens, mean", sum(entry.logprob for entry in entries) / len(entries))

        stopped = client.chat.completions.create(**ask, temperature=0, stop=["</predicted_observation>"])
        assert "</predicted_observation>" not in stopped.choices[0].message.content
        assert stopped.choices[0].finish_reason == "stop"
        print("stop:", repr(stopped.choices[0].message.content))

        plain = client.completions.create(model="worldloom", prompt=[5, 6, 7], max_tokens=5, temperature=0, logprobs=2,
                                          extra_body={"return_token_ids": True})
        choice = plain.choices[0]
        assert choice.prompt_token_ids == [5, 6, 7] and len(choice.token_ids) == plain.usage.completion_tokens
        print("token ids:", choice.token_ids)

        # What the benchmark's script sends (recipe.md 3.3).
        script = client.chat.completions.create(model="worldloom", messages=messages, max_tokens=32768, temperature=0.6)
        assert script.choices[0].message.content is not None

        for wrong, expected in [
            (dict(ask, model="other"), openai.NotFoundError),
            (dict(ask, temperature=-1), openai.BadRequestError),
            (dict(ask, messages=[{"role": "user", "content": "x " * 100_000}]), openai.BadRequestError),
        ]:
            try:
                client.chat.completions.create(**wrong)
            except expected as error:
                print(type(error).__name__, error.status_code, error.code, "-", error.body["message"][:70])
            else:
                raise AssertionError(expected)
    print("all passed")


if __name__ == "__main__":
    main()
