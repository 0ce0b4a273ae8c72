"""boto3 with requests signed by Signature Version 4: an upload, a list, a download, two calls."""

import sys

import boto3
from botocore.config import Config

s3 = boto3.client("s3", region_name="us-east-1", config=Config(s3={"addressing_style": "virtual"}))
data = bytes(range(256)) * 1200
s3.put_object(Bucket="notes", Key="a b/ü.bin", Body=data)
listed = s3.list_objects_v2(Bucket="notes")
sys.stdout.write(f"listed {len(listed['Contents'])}\n")
got = s3.get_object(Bucket="notes", Key="a b/ü.bin")["Body"]
sys.stdout.write(f"same {b''.join(got.iter_chunks(4096)) == data}\n")

model = boto3.client("bedrock-runtime", region_name="us-east-1")
ASK = {"modelId": "stub.model-v1:0", "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
answer = model.converse(**ASK)
sys.stdout.write(answer["output"]["message"]["content"][0]["text"] + "\n")
words = [
    event["contentBlockDelta"]["delta"]["text"]
    for event in model.converse_stream(**ASK)["stream"]
    if "contentBlockDelta" in event
]
sys.stdout.write(f"{len(words)} deltas: {''.join(words)}\n")
