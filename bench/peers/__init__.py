"""The tree's race: contenders behind one small interface, the workloads, the peers' set-up."""
