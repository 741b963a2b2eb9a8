"""Requests and answers: who may ask and how much, what a body holds, and how it is refused."""
