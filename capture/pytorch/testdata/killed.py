"""Train in forked processes that are killed by SIGKILL at some moment, one after the other.

usage: killed.py SEED ROUNDS FOLDER

Each appends a byte to a file in FOLDER, named after its process, when a step has ended.
"""
import os
import random
import signal
import sys
import time

import torch


def train(folder):
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    ended = os.open(os.path.join(folder, str(os.getpid())), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    while True:
        (weight - 1).square().sum().backward()
        optimizer.step()
        os.write(ended, b".")
        time.sleep(0.004)  # so that the ring holds what waits when sending is slow


moment = random.Random(int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        train(sys.argv[3])
    path = os.path.join(sys.argv[3], str(child))
    while not os.path.exists(path) or os.path.getsize(path) < 40:
        time.sleep(0.01)
    time.sleep(moment.random() / 4)  # until some moment of a step, or between two frames
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
